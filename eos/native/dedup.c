/* Read stamps from record headers, number producer ids, and compute the crc32 of ids. */

#include "kernels.h"

static inline u64 word_at(const u8 *at) {
  u64 found;
  copy(&found, at, 8);
  return found;
}

static inline u64 half_at(const u8 *at) {
  u32 found;
  copy(&found, at, 4);
  return found;
}

/* The last eight bytes, or all bytes if there are fewer: equal for equal texts of one length. */
static inline u64 last_word(struct field f) {
  u64 n = (u64)f.length;
  if (n >= 8) return word_at(f.data + n - 8);
  if (n >= 4) return half_at(f.data) << 32 | half_at(f.data + n - 4);
  return n ? (u64)f.data[0] << 16 | (u64)f.data[n / 2] << 8 | f.data[n - 1] : 0;
}

static inline int is_equal(struct field a, struct field b) {
  if (a.length != b.length) return 0;
  if (a.length > 0 && last_word(a) != last_word(b)) return 0;
  for (i64 at = 0; at < a.length - 8; at += 8)
    if (word_at(a.data + at) != word_at(b.data + at)) return 0;
  return 1;
}

/* ---- stamps -------------------------------------------------------------------------------- */

enum { ID, EPOCH, SEQUENCE, PARTS };

/* Any number with this many digits fits into 64 bits. */
#define DIGITS_MAX 18

/* The headers of some records, and the stamps that are read from them. */
struct stamping {
  i64 rows;
  const i64 *lists; /* the first header of each record, and the end of the last record's headers */
  struct source name;
  struct source value;
  struct field wanted[PARTS]; /* names of the headers */
  /* Results. `valid` has a bitmap for each part. */
  u8 *valid[PARTS];
  i64 nulls[PARTS];
  i32 *id_offsets;
  u8 *id_data;
  i64 id_bytes; /* capacity of `id_data` */
  i64 *numbers[PARTS]; /* of epoch and sequence; null for the id */
};

/* Parse 1 to 18 digits. Python parses all other texts, exactly as Spark does. */
static inline int plain_number(struct field f, i64 *out) {
  i64 found = 0;
  if (f.length < 1 || f.length > DIGITS_MAX) return NOT_PLAIN;
  for (i64 i = 0; i < f.length; i++) {
    u8 digit = (u8)(f.data[i] - '0');
    if (digit > 9) return NOT_PLAIN;
    found = found * 10 + digit;
  }
  *out = found;
  return 0;
}

/* Read the id, epoch and sequence of each record. The last header of a name counts. Return NOT_PLAIN
   if an epoch or sequence is no plain number, and INVALID for indexes or offsets outside a column. */
EXPORT i64 eos_stamps(struct stamping *s) {
  i64 used = 0;
  s->id_offsets[0] = 0;
  for (i64 row = 0; row < s->rows; row++) {
    struct field found[PARTS] = {{0, -1}, {0, -1}, {0, -1}};
    for (i64 at = s->lists[row]; at < s->lists[row + 1]; at++) {
      struct field name;
      TRY(get(&s->name, at, &name));
      for (int part = 0; part < PARTS; part++)
        if (is_equal(name, s->wanted[part])) TRY(get(&s->value, at, &found[part]));
    }
    if (found[ID].length > s->id_bytes - used || found[ID].length > I32_MAX - used) return INVALID;
    if (found[ID].length > 0) used = put(s->id_data + used, found[ID]) - s->id_data;
    s->id_offsets[row + 1] = (i32)used;
    for (int part = 0; part < PARTS; part++) {
      int is_null = found[part].length < 0;
      put_bit(s->valid[part], row, !is_null);
      s->nulls[part] += is_null;
      if (part == ID) continue;
      s->numbers[part][row] = 0;
      if (!is_null) TRY(plain_number(found[part], &s->numbers[part][row]));
    }
  }
  return 0;
}

/* ---- numbers of ids ------------------------------------------------------------------------ */

struct slot {
  u32 hash;
  i32 number; /* of the id, plus 1; 0: the slot is free */
};

/* A hash table with open addressing. It maps each id to its number, which is its row in `known`, or,
   if it is new, its place among the new ids after them. */
struct numbering {
  struct slot *slots;
  i64 slot_count; /* a power of two, at least twice the number of ids */
  u64 seed;       /* odd and random, so that no sender can choose ids that collide */
  struct source known;
  i64 indexed; /* how many of the known ids are in the table */
  struct source ids;
  i64 is_adding; /* whether new ids get a number; otherwise their number is -1 */
  i64 *numbers;  /* of `ids` */
  i64 *firsts;   /* rows of the new ids, in their order; room for all ids */
  i64 added;
};

static inline u32 hash_of(struct field f, u64 seed) {
  u64 hash = seed ^ (u64)f.length;
  for (i64 at = 0; at < f.length - 8; at += 8) {
    hash = (hash ^ word_at(f.data + at)) * seed;
    hash ^= hash >> 32;
  }
  hash = (hash ^ last_word(f)) * seed;
  hash = (hash ^ hash >> 32) * seed;
  return (u32)(hash >> 32);
}

/* Find the slot of an id, or the free slot where it belongs. The table always has a free slot. */
static inline int find_slot(struct numbering *x, struct field id, u32 hash, struct slot **out) {
  u64 mask = (u64)x->slot_count - 1;
  for (u64 at = hash & mask;; at = (at + 1) & mask) {
    struct slot *slot = *out = x->slots + at;
    if (!slot->number) return 0;
    if (slot->hash != hash) continue;
    i64 number = slot->number - 1, new = number - x->known.rows;
    struct field other;
    if (new >= x->added) return INVALID;
    TRY(new < 0 ? get(&x->known, number, &other) : get(&x->ids, x->firsts[new], &other));
    if (is_equal(id, other)) return 0;
  }
}

/* Add the known ids that are not in the table yet. If an id occurs twice, its last row counts. */
static int index_known(struct numbering *x) {
  for (; x->indexed < x->known.rows; x->indexed++) {
    struct field id;
    struct slot *slot;
    TRY(get(&x->known, x->indexed, &id));
    if (id.length < 0) return INVALID;
    u32 hash = hash_of(id, x->seed);
    TRY(find_slot(x, id, hash, &slot));
    *slot = (struct slot){hash, (i32)(x->indexed + 1)};
  }
  return 0;
}

/* Return the number of each id; a null has -1. Return NEEDS_ROOM if the table is too small. */
EXPORT i64 eos_number(struct numbering *x) {
  i64 most = x->known.rows + x->ids.rows;
  if (most >= I32_MAX || x->slot_count < 2 * (most + 1)) return NEEDS_ROOM;
  TRY(index_known(x));
  for (i64 row = 0; row < x->ids.rows; row++) {
    struct field id;
    struct slot *slot;
    TRY(get(&x->ids, row, &id));
    x->numbers[row] = -1;
    if (id.length < 0) continue;
    u32 hash = hash_of(id, x->seed);
    TRY(find_slot(x, id, hash, &slot));
    if (!slot->number) {
      if (!x->is_adding) continue;
      x->firsts[x->added++] = row;
      *slot = (struct slot){hash, (i32)(x->known.rows + x->added)};
    }
    x->numbers[row] = slot->number - 1;
  }
  return 0;
}

/* ---- crc32 --------------------------------------------------------------------------------- */

/* Compute zlib's crc32 of each text; of a null it is 0. `tables` has at least 8 tables of 256 numbers:
   table n has the effect of each byte that is n bytes before the end. */
EXPORT i64 eos_crc32(const struct source *texts, const u32 (*tables)[256], u32 *out) {
  for (i64 row = 0; row < texts->rows; row++) {
    struct field f;
    TRY(get(texts, row, &f));
    u32 crc = 0xffffffff;
    i64 at = 0;
    for (; f.length - at >= 8; at += 8) {
      const u8 *p = f.data + at;
      crc = tables[7][(p[0] ^ crc) & 0xff] ^ tables[6][(p[1] ^ crc >> 8) & 0xff] ^
            tables[5][(p[2] ^ crc >> 16) & 0xff] ^ tables[4][p[3] ^ crc >> 24] ^ tables[3][p[4]] ^
            tables[2][p[5]] ^ tables[1][p[6]] ^ tables[0][p[7]];
    }
    for (; at < f.length; at++) crc = crc >> 8 ^ tables[0][(crc ^ f.data[at]) & 0xff];
    out[row] = ~crc;
  }
  return 0;
}
