/*
 * The books of an owner by resource: a hash table with open addressing.
 *
 * A slot holds a book's hash and its number. So a look-up reads one cache line of slots, and then
 * only the book that it looks for. Books lie in slabs. A mount's books are aligned to cache lines,
 * so that a get reads one line; the books of an owner that lends many credits lie close together.
 *
 * A table that is three quarters full gets twice as many slots. The old slots are emptied little by
 * little, with each book that is added, so that no single addition moves all books. Look-ups search
 * them until they are empty. They are emptied run by run, from one empty slot to the next, because
 * a look-up ends at an empty slot.
 *
 * The memory of books is kept until the last book is removed.
 */
#include "core/credit_private.h"

#define FIRST_SLOTS 64
#define SLAB        256                /* books */
#define MOVED       8                  /* slots that are emptied with each addition, at least */
#define LINE        64                 /* bytes */
#define FREE        QOS_RESOURCE_TYPES /* the type of a book that is none */

static QosBook *book_at(const QosBookTable *table, guint number)
{
    guint8 *slab = table->slabs->pdata[(number - 1) / SLAB];
    return (QosBook *)(gpointer)(slab + (number - 1) % SLAB * table->stride);
}

void qos_table_init(QosBookTable *table, guint extra, gboolean is_fast, gboolean has_proofs)
{
    const gsize alignment = is_fast ? LINE : G_ALIGNOF(QosBook);
    const gsize size = sizeof(QosBook) + extra;

    G_STATIC_ASSERT(G_STRUCT_OFFSET(QosBook, sublets) <= LINE);
    *table = (QosBookTable){.has_proofs = has_proofs,
                            .stride = (size + alignment - 1) / alignment * alignment,
                            .slabs = g_ptr_array_new_with_free_func(g_aligned_free)};
    table->now = (QosBookSlots){g_new0(QosSlot, FIRST_SLOTS), FIRST_SLOTS - 1};
}

void qos_table_clear(QosBookTable *table)
{
    g_free(table->now.slots);
    g_free(table->before.slots);
    g_ptr_array_unref(table->slabs);
}

/* --- slots --- */

static QosSlot *slot_of(const QosBookTable *table, const QosBookSlots *in, guint hash,
                        const QosResource *resource)
{
    for (guint i = hash & in->mask; in->slots[i].book != 0; i = (i + 1) & in->mask) {
        if (in->slots[i].hash == hash &&
            qos_resource_equal(&book_at(table, in->slots[i].book)->resource, resource))
            return &in->slots[i];
    }
    return NULL;
}

static void put_in(QosBookSlots *slots, QosSlot slot)
{
    guint i = slot.hash & slots->mask;

    while (slots->slots[i].book != 0)
        i = (i + 1) & slots->mask;
    slots->slots[i] = slot;
}

/* Empties the slot. Later slots that a look-up would no longer find move up. */
static void take_out(QosBookSlots *slots, const QosSlot *slot)
{
    guint mask = slots->mask;
    guint hole = (guint)(slot - slots->slots);

    for (guint i = (hole + 1) & mask; slots->slots[i].book != 0; i = (i + 1) & mask) {
        guint from_home = (i - slots->slots[i].hash) & mask;
        if (from_home < ((i - hole) & mask))
            continue;
        slots->slots[hole] = slots->slots[i];
        hole = i;
    }
    slots->slots[hole].book = 0;
}

/* Empties some of the slots before. */
static void move_some(QosBookTable *table)
{
    QosBookSlots *before = &table->before;

    for (guint i = 0; before->slots != NULL; i++) {
        QosSlot *slot = &before->slots[table->moved & before->mask];
        if (i >= MOVED && slot->book == 0)
            return;
        if (slot->book != 0)
            put_in(&table->now, *slot);
        slot->book = 0;
        if (--table->unmoved == 0)
            g_clear_pointer(&before->slots, g_free);
        table->moved++;
    }
}

static void grow(QosBookTable *table)
{
    while (table->before.slots != NULL)
        move_some(table);
    table->before = table->now;
    table->now.mask = 2 * table->before.mask + 1;
    table->now.slots = g_new0(QosSlot, (gsize)table->now.mask + 1);
    table->unmoved = table->before.mask + 1;
    table->moved = 0;
    while (table->before.slots[table->moved].book != 0)
        table->moved++;
}

/* --- books --- */

QosBook *qos_table_find(const QosBookTable *table, const QosResource *resource)
{
    guint hash = qos_resource_hash(resource);
    const QosSlot *slot = slot_of(table, &table->now, hash, resource);

    if (slot == NULL && table->before.slots != NULL)
        slot = slot_of(table, &table->before, hash, resource);
    return slot != NULL ? book_at(table, slot->book) : NULL;
}

/* Proofs lie behind the books, because they do not fit into the books' cache lines. */
static gpointer new_slab(const QosBookTable *table)
{
    const gsize proof = table->has_proofs ? sizeof(guint32) : 0;

    return g_aligned_alloc(SLAB, table->stride + proof, LINE);
}

static guint new_number(QosBookTable *table)
{
    guint number = table->free;

    if (number != 0) {
        table->free = (guint)book_at(table, number)->borrowed.amount;
        return number;
    }
    if (table->numbers == table->slabs->len * SLAB)
        g_ptr_array_add(table->slabs, new_slab(table));
    return ++table->numbers;
}

QosBook *qos_table_add(QosBookTable *table, const QosResource *resource)
{
    QosSlot slot = {qos_resource_hash(resource), new_number(table)};
    QosBook *book = book_at(table, slot.book);

    memset(book, 0, table->stride);
    book->resource = *resource;
    move_some(table);
    if (++table->books > table->now.mask / 4 * 3)
        grow(table);
    put_in(&table->now, slot);
    return book;
}

static guint number_of(const QosBookTable *table, const QosBook *book)
{
    guint hash = qos_resource_hash(&book->resource);
    const QosSlot *slot = slot_of(table, &table->now, hash, &book->resource);

    return (slot != NULL ? slot : slot_of(table, &table->before, hash, &book->resource))->book;
}

guint32 *qos_table_proof(const QosBookTable *table, const QosBook *book)
{
    const guint place = number_of(table, book) - 1;
    guint8 *slab = table->slabs->pdata[place / SLAB];

    return (guint32 *)(gpointer)(slab + SLAB * table->stride) + place % SLAB;
}

void qos_table_remove(QosBookTable *table, QosBook *book)
{
    guint hash = qos_resource_hash(&book->resource);
    QosBookSlots *in = &table->now;
    const QosSlot *slot = slot_of(table, in, hash, &book->resource);

    if (slot == NULL) {
        in = &table->before;
        slot = slot_of(table, in, hash, &book->resource);
    }
    book->resource.type = FREE;
    book->borrowed.amount = table->free;
    table->free = slot->book;
    take_out(in, slot);
    if (--table->books > 0)
        return;
    g_ptr_array_set_size(table->slabs, 0);
    table->free = table->numbers = 0;
}

QosBook *qos_table_next(const QosBookTable *table, const QosBook *book)
{
    for (guint i = book != NULL ? number_of(table, book) + 1 : 1; i <= table->numbers; i++) {
        QosBook *next = book_at(table, i);
        if (next->resource.type != FREE)
            return next;
    }
    return NULL;
}
