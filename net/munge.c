/*
 * The handshake by MUNGE; net/munge.h has its messages. Builds without libmunge take
 * net/munge_none.c.
 */
#include "net/munge.h"

#include <errno.h>
#include <munge.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/error.h"

#define MAGIC          "qosfs munge 1\n"
#define MAGIC_LENGTH   14
#define NONCE_LENGTH   32
#define CREDENTIAL_MAX 1024 /* bytes; one with this payload has some 500 */

G_STATIC_ASSERT(sizeof(MAGIC) == MAGIC_LENGTH + 1);

typedef struct {
    guint8 magic[MAGIC_LENGTH];
    guint8 nonce[NONCE_LENGTH];
} Opening;

typedef struct {
    QosMungeRole role;
    GSocket *socket;
    const char *munged;
    GCancellable *cancellable;
    guint8 nonces[2][NONCE_LENGTH]; /* by QosMungeRole */
} Handshake;

/* --- bytes --- */

static gboolean send_all(const Handshake *handshake, gconstpointer bytes, gsize length,
                         GError **error)
{
    const char *next = bytes;

    while (length > 0) {
        gssize sent = g_socket_send_with_blocking(handshake->socket, next, length, TRUE,
                                                  handshake->cancellable, error);
        if (sent < 0)
            return FALSE;
        next += sent;
        length -= (gsize)sent;
    }
    return TRUE;
}

static gboolean receive_all(const Handshake *handshake, gpointer bytes, gsize length,
                            GError **error)
{
    char *next = bytes;

    while (length > 0) {
        gssize received = g_socket_receive_with_blocking(handshake->socket, next, length, TRUE,
                                                         handshake->cancellable, error);
        if (received == 0)
            qos_set_error(error, ECONNRESET,
                          "it closed the connection within the handshake: see its log");
        if (received <= 0)
            return FALSE;
        next += received;
        length -= (gsize)received;
    }
    return TRUE;
}

/* --- openings --- */

static gboolean send_opening(Handshake *handshake, GError **error)
{
    guint8 *nonce = handshake->nonces[handshake->role];
    Opening opening;

    if (getrandom(nonce, NONCE_LENGTH, 0) != NONCE_LENGTH) {
        qos_set_error(error, errno, "no random bytes: %s", g_strerror(errno));
        return FALSE;
    }
    memcpy(opening.magic, MAGIC, MAGIC_LENGTH);
    memcpy(opening.nonce, nonce, NONCE_LENGTH);
    return send_all(handshake, &opening, sizeof(opening), error);
}

static gboolean receive_opening(Handshake *handshake, GError **error)
{
    Opening opening;

    if (!receive_all(handshake, &opening, sizeof(opening), error))
        return FALSE;
    if (memcmp(opening.magic, MAGIC, MAGIC_LENGTH) != 0) {
        qos_set_error(error, EPROTO, "what it says is no handshake by MUNGE of this version");
        return FALSE;
    }
    memcpy(handshake->nonces[!handshake->role], opening.nonce, NONCE_LENGTH);
    return TRUE;
}

/* --- credentials --- */

/* The payload that a credential of that role must have; NULL with an error if the connection has
 * broken. */
static char *make_payload(const Handshake *handshake, QosMungeRole role, GError **error)
{
    g_autoptr(GSocketAddress) server = handshake->role == QOS_MUNGE_SERVER
                                           ? g_socket_get_local_address(handshake->socket, error)
                                           : g_socket_get_remote_address(handshake->socket, error);
    g_autofree char *address = NULL, *mount_nonce = NULL, *server_nonce = NULL;

    if (server == NULL)
        return NULL;
    address = g_socket_connectable_to_string(G_SOCKET_CONNECTABLE(server));
    mount_nonce = g_base64_encode(handshake->nonces[QOS_MUNGE_MOUNT], NONCE_LENGTH);
    server_nonce = g_base64_encode(handshake->nonces[QOS_MUNGE_SERVER], NONCE_LENGTH);
    return g_strdup_printf("%s%s %s %s %s", MAGIC, role == QOS_MUNGE_SERVER ? "server" : "mount",
                           mount_nonce, server_nonce, address);
}

static munge_ctx_t make_context(const char *munged)
{
    munge_ctx_t context = munge_ctx_create();

    if (context == NULL)
        g_error("no memory");
    if (munged != NULL)
        munge_ctx_set(context, MUNGE_OPT_SOCKET, munged);
    return context;
}

/* libmunge's own words, which name the socket. */
static const char *fault_of(munge_ctx_t context, munge_err_t fault)
{
    const char *text = munge_ctx_strerror(context);

    return text != NULL ? text : munge_strerror(fault);
}

static gboolean send_credential(const Handshake *handshake, GError **error)
{
    g_autofree char *payload = make_payload(handshake, handshake->role, error);
    guint8 length[2];
    char *credential = NULL;
    gboolean is_sent = FALSE;

    if (payload == NULL)
        return FALSE;
    munge_ctx_t context = make_context(handshake->munged);
    munge_err_t fault = munge_encode(&credential, context, payload, (int)strlen(payload));
    if (fault != EMUNGE_SUCCESS) {
        qos_set_error(error, EACCES, "no MUNGE credential: %s", fault_of(context, fault));
    } else if (strlen(credential) > CREDENTIAL_MAX) {
        qos_set_error(error, EMSGSIZE, "a MUNGE credential of %zu bytes; %d are allowed",
                      strlen(credential), CREDENTIAL_MAX);
    } else {
        length[0] = (guint8)strlen(credential);
        length[1] = (guint8)(strlen(credential) >> 8);
        is_sent = send_all(handshake, length, sizeof(length), error) &&
                  send_all(handshake, credential, strlen(credential), error);
    }
    free(credential);
    munge_ctx_destroy(context);
    return is_sent;
}

/* Checks that the credential is for the peer's role; *ret_uid is the user that made it. */
static gboolean check_credential(const Handshake *handshake, const char *credential, uid_t *ret_uid,
                                 GError **error)
{
    g_autofree char *expected = make_payload(handshake, !handshake->role, error);
    gboolean is_right = FALSE;
    void *payload = NULL;
    int length = 0;

    if (expected == NULL)
        return FALSE;
    munge_ctx_t context = make_context(handshake->munged);
    munge_err_t fault = munge_decode(credential, context, &payload, &length, ret_uid, NULL);
    if (fault != EMUNGE_SUCCESS)
        qos_set_error(error, EACCES, "its MUNGE credential: %s", fault_of(context, fault));
    else if ((gsize)length != strlen(expected) || memcmp(payload, expected, strlen(expected)) != 0)
        qos_set_error(error, EACCES,
                      "its MUNGE credential is for another connection, or there is an address "
                      "translation between");
    else
        is_right = TRUE;
    free(payload);
    munge_ctx_destroy(context);
    return is_right;
}

static gboolean receive_credential(const Handshake *handshake, uid_t *ret_uid, GError **error)
{
    char credential[CREDENTIAL_MAX + 1];
    guint8 bytes[2];

    if (!receive_all(handshake, bytes, sizeof(bytes), error))
        return FALSE;
    gsize length = bytes[0] | (gsize)bytes[1] << 8;
    if (length > CREDENTIAL_MAX) {
        qos_set_error(error, EPROTO, "what it says is no MUNGE credential");
        return FALSE;
    }
    if (!receive_all(handshake, credential, length, error))
        return FALSE;
    credential[length] = '\0';
    return check_credential(handshake, credential, ret_uid, error);
}

/* --- the whole --- */

gboolean qos_munge_is_built(G_GNUC_UNUSED GError **error)
{
    return TRUE;
}

gboolean qos_munge_answers(const char *munged, GError **error)
{
    munge_ctx_t context = make_context(munged);
    char *credential = NULL;
    munge_err_t fault = munge_encode(&credential, context, NULL, 0);

    if (fault != EMUNGE_SUCCESS)
        qos_set_error(error, EACCES, "no MUNGE credential: %s", fault_of(context, fault));
    free(credential);
    munge_ctx_destroy(context);
    return fault == EMUNGE_SUCCESS;
}

gboolean qos_munge_shake_hands(QosMungeRole role, GSocket *socket, const char *munged,
                               gboolean (*is_allowed)(uid_t uid, gconstpointer arg),
                               gconstpointer arg, uid_t *ret_uid, GCancellable *cancellable,
                               GError **error)
{
    Handshake handshake = {
        .role = role, .socket = socket, .munged = munged, .cancellable = cancellable};
    gboolean is_first = role == QOS_MUNGE_MOUNT;

    if (is_first && !send_opening(&handshake, error))
        return FALSE;
    if (!receive_opening(&handshake, error))
        return FALSE;
    if (is_first ? !send_credential(&handshake, error) : !send_opening(&handshake, error))
        return FALSE;
    if (!receive_credential(&handshake, ret_uid, error))
        return FALSE;
    if (!is_allowed(*ret_uid, arg)) {
        qos_set_error(error, EACCES, "user %u of the MUNGE realm is not permitted", *ret_uid);
        return FALSE;
    }
    return is_first || send_credential(&handshake, error);
}
