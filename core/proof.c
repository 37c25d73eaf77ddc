/*
 * SipHash-2-4 over borrower, token and resource; core/proof.h says what it proves.
 */
#include "core/proof.h"

#include <string.h>

typedef struct {
    guint64 a, b, c, d;
} State;

static guint64 rotate(guint64 value, guint bits)
{
    return value << bits | value >> (64 - bits);
}

static void stir(State *state, guint rounds)
{
    for (guint i = 0; i < rounds; i++) {
        state->a += state->b;
        state->c += state->d;
        state->b = rotate(state->b, 13) ^ state->a;
        state->d = rotate(state->d, 16) ^ state->c;
        state->a = rotate(state->a, 32);
        state->c += state->b;
        state->a += state->d;
        state->b = rotate(state->b, 17) ^ state->c;
        state->d = rotate(state->d, 21) ^ state->a;
        state->c = rotate(state->c, 32);
    }
}

static void take_word(State *state, guint64 word)
{
    state->d ^= word;
    stir(state, 2);
    state->a ^= word;
}

guint64 qos_siphash(const guint64 key[2], const guint8 *bytes, gsize length)
{
    State state = {key[0] ^ G_GUINT64_CONSTANT(0x736f6d6570736575),
                   key[1] ^ G_GUINT64_CONSTANT(0x646f72616e646f6d),
                   key[0] ^ G_GUINT64_CONSTANT(0x6c7967656e657261),
                   key[1] ^ G_GUINT64_CONSTANT(0x7465646279746573)};
    guint64 word;
    gsize place = 0;

    for (; place + sizeof(word) <= length; place += sizeof(word)) {
        memcpy(&word, bytes + place, sizeof(word));
        take_word(&state, GUINT64_FROM_LE(word));
    }
    word = 0;
    memcpy(&word, bytes + place, length - place);
    take_word(&state, GUINT64_FROM_LE(word) | (guint64)length << 56);
    state.c ^= 0xff;
    stir(&state, 4);
    return state.a ^ state.b ^ state.c ^ state.d;
}

guint32 qos_proof(const guint64 key[2], QosOwnerId borrower, QosToken token,
                  const QosResource *resource)
{
    const guint64 numbers[] = {GUINT64_TO_LE(borrower), GUINT64_TO_LE(token)};
    guint8 bytes[sizeof(numbers) + 2 + sizeof(resource->name)];
    const gsize length = sizeof(numbers) + 2 + resource->length;

    memcpy(bytes, numbers, sizeof(numbers));
    bytes[sizeof(numbers)] = resource->type;
    bytes[sizeof(numbers) + 1] = resource->length;
    memcpy(bytes + sizeof(numbers) + 2, resource->name, resource->length);
    return (guint32)qos_siphash(key, bytes, length);
}
