/*
 * Describes the adaptive sharing in words: of the mount in one line, and of a job in sentences.
 * These say what the job is entitled to, and what it lends or borrows now. They name the other side
 * of the loan and the other jobs that want the store. They also say what is still to be paid back.
 */
#include <math.h>

#include "tools/ctl_render.h"

#define NAMES_MAX 3   /* other jobs that are named */
#define NEARLY    0.9 /* so much of what is said is there */

/* The member where it is an object, else NULL: null, or of an older daemon. */
static JsonObject *object_of(JsonObject *parent, const char *member)
{
    JsonNode *node = json_object_get_member(parent, member);
    return node && JSON_NODE_HOLDS_OBJECT(node) ? json_node_get_object(node) : NULL;
}

JsonObject *qos_ctl_sharing(JsonObject *state)
{
    JsonObject *adapt = object_of(state, "adapt");
    return adapt && !g_str_equal(qos_ctl_state_text(adapt, "mode"), "off") ? adapt : NULL;
}

JsonObject *qos_ctl_share(JsonObject *job)
{
    JsonObject *share = object_of(job, "share");
    return share && qos_ctl_state_flag(share, "takes_part") ? share : NULL;
}

/* "375 op/s" */
static char *rate_of(JsonObject *object, const char *member)
{
    g_autofree char *rate = qos_ctl_format_rate(fabs(qos_ctl_state_number(object, member)));
    return g_strconcat(rate, " op/s", NULL);
}

static char *count_of(JsonObject *share, const char *member)
{
    return g_strdup_printf("%.0f", fabs(qos_ctl_state_number(share, member)));
}

/* TRUE where it is worth a sentence. */
static gboolean is_something(double operations)
{
    return fabs(operations) >= 1.5;
}

/* What was said of the store, or is reserved, and is not there. */
static void append_doubts(GString *text, JsonObject *adapt)
{
    const double capacity = qos_ctl_state_number(adapt, "capacity");
    g_autofree char *told = rate_of(adapt, "told_capacity");
    g_autofree char *reserved = rate_of(adapt, "reserved");

    if (qos_ctl_state_number(adapt, "told_capacity") * NEARLY > capacity)
        g_string_append_printf(text,
                               "          the store has less than the %s that it is said to have "
                               "(capacity=): shares are made of what it has\n",
                               told);
    if (qos_ctl_state_number(adapt, "reserved") > capacity)
        g_string_append_printf(text,
                               "          %s are reserved (min=), more than the store has: each "
                               "reservation has a part\n",
                               reserved);
}

void qos_ctl_append_sharing(GString *text, JsonObject *state)
{
    JsonObject *adapt = qos_ctl_sharing(state);
    if (!adapt)
        return;
    g_autofree char *mode = qos_ctl_escape(qos_ctl_state_text(adapt, "mode"));
    g_autofree char *capacity = rate_of(adapt, "capacity");
    g_autofree char *period = qos_ctl_format_seconds(qos_ctl_state_number(adapt, "period"));
    gint64 members = qos_ctl_state_count(adapt, "members");
    g_string_append_printf(text,
                           "sharing   %s, %s (%s), %" G_GINT64_FORMAT
                           " job%s, anew every %s, at most %" G_GINT64_FORMAT " in the store\n",
                           mode, capacity, qos_ctl_state_flag(adapt, "told") ? "told" : "estimated",
                           members, members == 1 ? "" : "s", period,
                           qos_ctl_state_count(adapt, "depth"));
    append_doubts(text, adapt);
}

/* --- a job --- */

static void append_entitlement(GString *text, JsonObject *state, JsonObject *share)
{
    JsonArray *jobs = json_object_get_array_member(state, "jobs");
    JsonObject *adapt = qos_ctl_sharing(state);
    g_autofree char *entitlement = rate_of(share, "entitlement");
    g_autofree char *capacity = rate_of(adapt, "capacity");
    gint64 weights = 0;

    for (guint i = 0; i < json_array_get_length(jobs); i++) {
        JsonObject *other = qos_ctl_share(json_array_get_object_element(jobs, i));
        weights += other ? qos_ctl_state_count(other, "weight") : 0;
    }
    g_string_append_printf(
        text, "\nThe store is shared: its weight is %" G_GINT64_FORMAT " of %" G_GINT64_FORMAT,
        qos_ctl_state_count(share, "weight"), weights);
    if (qos_ctl_state_number(share, "entitlement") > 0)
        g_string_append_printf(text, ", which is %s of %s", entitlement, capacity);
    g_string_append(text, ".\n");
}

static void append_flow(GString *text, JsonObject *share)
{
    double flow = qos_ctl_state_number(share, "flow");
    const char *partner = qos_ctl_state_text(share, "partner");
    g_autofree char *rate = rate_of(share, "flow");
    g_autofree char *name = qos_ctl_escape(partner);

    if (!is_something(flow))
        return;
    g_string_append_printf(text, "  Now it %s %s", flow > 0 ? "lends" : "borrows", rate);
    if (*partner)
        g_string_append_printf(text, ", most of that %s job %s", flow > 0 ? "to" : "from", name);
    g_string_append(text, ".\n");
}

/* Those that make it wait: the others that wait too. */
static void append_rivals(GString *text, JsonObject *state, JsonObject *job)
{
    g_autoptr(GPtrArray) jobs = qos_ctl_state_jobs(state);
    g_autoptr(GString) names = g_string_new(NULL);
    guint rivals = 0;

    for (guint i = 0; i < jobs->len; i++) {
        JsonObject *other = jobs->pdata[i];
        if (other == job || !qos_ctl_share(other) || !qos_ctl_state_count(other, "waiting"))
            continue;
        g_autofree char *name = qos_ctl_escape(qos_ctl_state_text(other, "id"));
        if (rivals++ < NAMES_MAX)
            g_string_append_printf(names, "%s%s", names->len ? ", " : "", name);
    }
    if (rivals > NAMES_MAX)
        g_string_append_printf(names, " and %u more", rivals - NAMES_MAX);
    if (rivals)
        g_string_append_printf(text, "; %u other job%s want%s more, too: %s", rivals,
                               rivals == 1 ? "" : "s", rivals == 1 ? "s" : "", names->str);
}

/* Its share is used up, where it is. */
static void append_shortage(GString *text, JsonObject *state, JsonObject *job, JsonObject *share)
{
    double demand = qos_ctl_state_number(share, "demand");
    g_autofree char *wanted = rate_of(share, "demand");
    g_autofree char *allocation = rate_of(share, "allocation");

    if (!qos_ctl_state_count(job, "waiting") || demand <= qos_ctl_state_number(share, "allocation"))
        return;
    g_string_append_printf(text, "  It asks for %s and is to have %s: its share is used up", wanted,
                           allocation);
    append_rivals(text, state, job);
    g_string_append(text, ".\n");
}

static void append_record(GString *text, JsonObject *share)
{
    double record = qos_ctl_state_number(share, "record");
    g_autofree char *open = count_of(share, "record");
    g_autofree char *lent = count_of(share, "lent");
    g_autofree char *returned = count_of(share, "returned");
    g_autofree char *borrowed = count_of(share, "borrowed");
    g_autofree char *repaid = count_of(share, "repaid");

    if (is_something(qos_ctl_state_number(share, "lent")))
        g_string_append_printf(text, "  It lent %s operations in all, and was paid back %s.\n",
                               lent, returned);
    if (is_something(qos_ctl_state_number(share, "borrowed")))
        g_string_append_printf(text, "  It borrowed %s operations in all, and paid back %s.\n",
                               borrowed, repaid);
    if (is_something(record))
        g_string_append_printf(text, "  %s %s operations.\n",
                               record > 0 ? "The others still owe it" : "It still owes the others",
                               open);
}

void qos_ctl_append_share(GString *text, JsonObject *state, JsonObject *job)
{
    JsonObject *share = qos_ctl_share(job);

    if (!qos_ctl_sharing(state))
        return;
    if (!share) {
        g_string_append(text, "\nThe store is shared; it takes no part, as it asked for nothing "
                              "lately.\n");
        return;
    }
    append_entitlement(text, state, share);
    append_shortage(text, state, job, share);
    append_flow(text, share);
    append_record(text, share);
}
