/*
 * The books of an owner by resource: linear hashing. With n buckets, 2^k <= n < 2^(k+1), a book is
 * in bucket hash mod 2^(k+1), or mod 2^k if there is no such bucket. Bucket n is made by splitting
 * bucket n - 2^k, so that no addition moves more than one chain. Tables shrink in use, not in
 * memory.
 */
#include "core/credit_private.h"

#define FIRST_SEGMENT 64

static guint segment_of(guint bucket)
{
    return bucket < FIRST_SEGMENT ? 0 : g_bit_storage(bucket / FIRST_SEGMENT);
}

static guint segment_start(guint segment)
{
    return segment == 0 ? 0 : FIRST_SEGMENT << (segment - 1);
}

static QosBook **bucket_at(const QosBookTable *table, guint bucket)
{
    guint segment = segment_of(bucket);
    return &table->segments[segment][bucket - segment_start(segment)];
}

static guint bucket_of(const QosBookTable *table, const QosResource *resource)
{
    guint hash = qos_resource_hash(resource);
    guint high = 1U << (g_bit_storage(table->buckets) - 1);
    guint bucket = hash & (2 * high - 1);
    return bucket < table->buckets ? bucket : hash & (high - 1);
}

void qos_table_init(QosBookTable *table)
{
    *table = (QosBookTable){.buckets = FIRST_SEGMENT};
    table->segments[0] = g_new0(QosBook *, FIRST_SEGMENT);
}

void qos_table_clear(QosBookTable *table)
{
    for (guint i = 0; i < QOS_TABLE_SEGMENTS; i++)
        g_free(table->segments[i]);
}

static QosBook **place_of(const QosBookTable *table, const QosResource *resource)
{
    QosBook **place = bucket_at(table, bucket_of(table, resource));
    while (*place != NULL && !qos_resource_equal(&(*place)->resource, resource))
        place = &(*place)->next;
    return place;
}

QosBook *qos_table_find(const QosBookTable *table, const QosResource *resource)
{
    return *place_of(table, resource);
}

static void add_bucket(QosBookTable *table)
{
    guint bucket = table->buckets;
    guint segment = segment_of(bucket);
    guint split = bucket - (1U << (g_bit_storage(bucket) - 1));
    QosBook **place;

    if (segment == QOS_TABLE_SEGMENTS)
        return; /* chains grow instead */
    if (table->segments[segment] == NULL)
        table->segments[segment] = g_new0(QosBook *, segment_start(segment));
    table->buckets++;
    place = bucket_at(table, split);
    while (*place != NULL) {
        QosBook *book = *place;
        if (bucket_of(table, &book->resource) == split) {
            place = &book->next;
            continue;
        }
        *place = book->next;
        book->next = *bucket_at(table, bucket);
        *bucket_at(table, bucket) = book;
    }
}

void qos_table_add(QosBookTable *table, QosBook *book)
{
    if (++table->books > table->buckets)
        add_bucket(table);
    QosBook **place = bucket_at(table, bucket_of(table, &book->resource));
    book->next = *place;
    *place = book;
}

void qos_table_remove(QosBookTable *table, QosBook *book)
{
    *place_of(table, &book->resource) = book->next;
    table->books--;
}

QosBook *qos_table_next(const QosBookTable *table, const QosBook *book)
{
    guint bucket = 0;

    if (book != NULL && book->next != NULL)
        return book->next;
    if (book != NULL)
        bucket = bucket_of(table, &book->resource) + 1;
    for (; bucket < table->buckets; bucket++) {
        if (*bucket_at(table, bucket) != NULL)
            return *bucket_at(table, bucket);
    }
    return NULL;
}
