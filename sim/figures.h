/*
 * Figures of an experiment, as seed 004 has them (figures 3 to 9), in our own data: SVG, by
 * gnuplot.
 */
#pragma once

#include "sim/experiment.h"

/* Draws those that the scenario names into `directory`, which exists: NAME.gnuplot, which holds the
 * data, and NAME.svg. Errors (QOS_ERROR): what cannot be written, or drawn. */
gboolean qos_figures_draw(const QosExperiment *experiment, const char *directory, GError **error);
