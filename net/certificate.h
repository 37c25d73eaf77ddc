/*
 * Says what is wrong with the peer's certificate, in words that users can act upon.
 */
#pragma once

#include <gio/gio.h>

/* The gravest of `faults`, of which there is one at least: "its certificate has expired". Static.
 */
const char *qos_certificate_fault(GTlsCertificateFlags faults);
