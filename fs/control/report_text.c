/*
 * A job's id as text: the same in all formats that do not quote ids otherwise
 * (fs/control/report.h).
 */
#include "fs/control/report.h"

#include <string.h>

void qos_report_append_id(GString *text, const char *id)
{
    static const char digits[] = "0123456789ABCDEF";

    for (; *id; id++) {
        if (g_ascii_isalnum(*id) || strchr(".@-_:/", *id)) {
            g_string_append_c(text, *id);
        } else {
            guchar byte = (guchar)*id;
            char hex[] = {'\\', 'x', digits[byte >> 4], digits[byte & 15]};

            g_string_append_len(text, hex, sizeof(hex));
        }
    }
}
