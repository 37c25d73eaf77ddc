/*
 * A sentence for each fault that TLS finds in a certificate (net/certificate.h).
 */
#include "net/certificate.h"

const char *qos_certificate_fault(GTlsCertificateFlags faults)
{
    return faults & G_TLS_CERTIFICATE_UNKNOWN_CA      ? "its certificate is of another authority"
           : faults & G_TLS_CERTIFICATE_EXPIRED       ? "its certificate has expired"
           : faults & G_TLS_CERTIFICATE_NOT_ACTIVATED ? "its certificate is not valid yet"
           : faults & G_TLS_CERTIFICATE_REVOKED       ? "its certificate has been revoked"
           : faults & G_TLS_CERTIFICATE_BAD_IDENTITY
               ? "its certificate is not for that host (subjectAltName)"
               : "its certificate will not do";
}
