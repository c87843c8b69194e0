/* Encode Arrow columns as records of Kafka's format v2. */

#include "kernels.h"

static inline u64 zigzag(i64 value) { return ((u64)value << 1) ^ (u64)(value >> 63); }

static inline i64 number_size(u64 number) {
  if (number < 1 << 7) return 1;
  if (number < 1 << 14) return 2;
  return (70 - __builtin_clzll(number)) / 7;
}

static inline i64 length_size(i64 length) { return number_size(zigzag(length)); }

static inline u8 *put_number(u8 *at, u64 number) {
  while (number > 0x7f) {
    *at++ = (u8)(number | 0x80);
    number >>= 7;
  }
  *at++ = (u8)number;
  return at;
}

/* A column sorted by target partition, without gaps. A null has length -1 and no bytes. */
struct sorted {
  i32 *lengths;
  i32 *offsets; /* the start of each value, and the end of the last */
  u8 *data;
  i64 size; /* bytes of all values */
};

/* ---- grouping ------------------------------------------------------------------------------ */

/* Rows, and the target partition of each. Rows are read in their own order, and each is written to
   the next free place of its target. To read rows target by target would take three times as long. */
struct grouping {
  i64 rows;
  i64 targets;
  const i64 *target; /* null: all rows have the same */
  struct source key;
  struct source value;
  const i64 *timestamps; /* in milliseconds; null: none */
  /* Headers, or null. A row's names and values are adjacent elements. */
  const i32 *header_counts;
  const i32 *first_name;
  const i32 *first_text;
  struct source name;
  struct source text;
  /* The next free place of each target: TOTALS numbers for each. */
  i64 *places;
  /* Results. `eos_count` computes the sizes, and `eos_group` writes the columns. */
  i64 headers;
  i64 *order; /* the row of each record; null: not needed */
  struct sorted sorted_key;
  struct sorted sorted_value;
  i64 *sorted_timestamps;
  i32 *sorted_counts;
  i64 *sorted_first; /* the first header of each record, and the number of all headers */
  struct sorted sorted_name;
  struct sorted sorted_text;
};

enum { OF_ROWS, OF_KEYS, OF_VALUES, OF_HEADERS, OF_NAMES, OF_TEXTS, TOTALS };

static inline i64 size_of(struct field f) { return f.length > 0 ? f.length : 0; }

static int header(const struct grouping *g, i64 row, i64 index, struct field *name,
                  struct field *text) {
  TRY(get(&g->name, (i64)g->first_name[row] + index, name));
  TRY(get(&g->text, (i64)g->first_text[row] + index, text));
  return name->length < 0 ? NULL_NAME : 0;
}

/* Count the rows and bytes of each target, and set the target's first places. */
EXPORT i64 eos_count(struct grouping *g) {
  fill(g->places, 0, (usize)(g->targets * TOTALS) * sizeof(i64));
  for (i64 row = 0; row < g->rows; row++) {
    struct field key, value;
    i64 target = g->target ? g->target[row] : 0;
    if (target < 0 || target >= g->targets) return INVALID;
    i64 *of = g->places + target * TOTALS;
    TRY(get(&g->key, row, &key));
    TRY(get(&g->value, row, &value));
    of[OF_ROWS]++;
    of[OF_KEYS] += size_of(key);
    of[OF_VALUES] += size_of(value);
    i64 count = g->header_counts ? g->header_counts[row] : 0;
    if (count < 0) return INVALID;
    of[OF_HEADERS] += count;
    for (i64 i = 0; i < count; i++) {
      struct field name, text;
      TRY(header(g, row, i, &name, &text));
      of[OF_NAMES] += name.length;
      of[OF_TEXTS] += size_of(text);
    }
  }
  i64 total[TOTALS] = {0};
  for (i64 target = 0; target < g->targets; target++) {
    for (int i = 0; i < TOTALS; i++) {
      i64 count = g->places[target * TOTALS + i];
      g->places[target * TOTALS + i] = total[i];
      total[i] += count;
      if (total[i] > I32_MAX) return INVALID; /* the sorted columns have 32-bit offsets */
    }
  }
  g->headers = total[OF_HEADERS];
  g->sorted_key.size = total[OF_KEYS];
  g->sorted_value.size = total[OF_VALUES];
  g->sorted_name.size = total[OF_NAMES];
  g->sorted_text.size = total[OF_TEXTS];
  return 0;
}

static inline void place(struct sorted *s, i64 at, i64 *used, struct field f) {
  s->lengths[at] = (i32)f.length;
  put(s->data + *used, f);
  *used += size_of(f);
}

static int place_headers(struct grouping *g, i64 row, i64 at, i64 *of) {
  i64 count = g->header_counts[row];
  g->sorted_counts[at] = (i32)count;
  g->sorted_first[at] = of[OF_HEADERS];
  for (i64 i = 0; i < count; i++) {
    struct field name, text;
    TRY(header(g, row, i, &name, &text));
    i64 to = of[OF_HEADERS]++;
    place(&g->sorted_name, to, &of[OF_NAMES], name);
    place(&g->sorted_text, to, &of[OF_TEXTS], text);
  }
  return 0;
}

/* Compute a sorted column's offsets from its lengths. `eos_group` itself writes only the lengths,
   since it writes to many places at a time. */
static void add_offsets(struct sorted *s, i64 rows) {
  i64 start = 0;
  for (i64 row = 0; row < rows; row++) {
    s->offsets[row] = (i32)start;
    if (s->lengths[row] > 0) start += s->lengths[row];
  }
  s->offsets[rows] = (i32)start;
}

/* Write the columns in the order of the targets. `eos_count` has set the places and checked all
   values, and the caller has provided room of the sizes that it computed. */
EXPORT i64 eos_group(struct grouping *g) {
  for (i64 row = 0; row < g->rows; row++) {
    struct field key, value;
    i64 *of = g->places + (g->target ? g->target[row] : 0) * TOTALS;
    i64 at = of[OF_ROWS]++;
    TRY(get(&g->key, row, &key));
    TRY(get(&g->value, row, &value));
    place(&g->sorted_key, at, &of[OF_KEYS], key);
    place(&g->sorted_value, at, &of[OF_VALUES], value);
    if (g->order) g->order[at] = row;
    if (g->timestamps) g->sorted_timestamps[at] = g->timestamps[row];
    if (g->header_counts) TRY(place_headers(g, row, at, of));
  }
  add_offsets(&g->sorted_key, g->rows);
  add_offsets(&g->sorted_value, g->rows);
  if (g->header_counts) {
    g->sorted_first[g->rows] = g->headers;
    add_offsets(&g->sorted_name, g->headers);
    add_offsets(&g->sorted_text, g->headers);
  }
  return 0;
}

/* ---- records ------------------------------------------------------------------------------- */

/* Columns that `eos_group` wrote, and one record batch. */
struct encoder {
  i64 rows;
  struct sorted key;
  struct sorted value;
  const i64 *timestamps; /* null: all have the base timestamp */
  const i32 *counts;     /* null: no record has headers */
  const i64 *first;
  struct sorted name;
  struct sorted text;
  /* Result of `eos_measure`: the size of each record without its length, its timestamp delta and its
     offset delta. */
  i64 *sizes;
  /* The record batch that `eos_write` writes, and its size. */
  i64 start;
  i64 end;
  u8 *out;
  i64 out_capacity;
  i64 out_size;
};

static inline struct field at(const struct sorted *s, i64 row) {
  struct field f = {s->data + s->offsets[row], s->lengths[row]};
  return f;
}

static inline i64 blob_size(i64 length) {
  return length_size(length) + (length > 0 ? length : 0);
}

static inline u8 *put_blob(u8 *out, struct field f) {
  return put(put_number(out, zigzag(f.length)), f);
}

EXPORT i64 eos_measure(struct encoder *e) {
  for (i64 row = 0; row < e->rows; row++) {
    i64 count = e->counts ? e->counts[row] : 0;
    i64 size = 1 + blob_size(e->key.lengths[row]) + blob_size(e->value.lengths[row]);
    size += length_size(count);
    for (i64 i = 0; i < count; i++) {
      i64 each = e->first[row] + i;
      size += blob_size(e->name.lengths[each]) + blob_size(e->text.lengths[each]);
    }
    e->sizes[row] = size;
  }
  return 0;
}

static inline u64 time_delta(const struct encoder *e, i64 row, i64 start) {
  return e->timestamps ? zigzag((i64)((u64)e->timestamps[row] - (u64)e->timestamps[start])) : 0;
}

/* Return how many records from `start` on, at most up to `end`, fit into `room` bytes of one record
   batch. */
EXPORT i64 eos_fit(const struct encoder *e, i64 room) {
  if (e->start < 0 || e->start > e->end || e->end > e->rows) return INVALID;
  for (i64 row = e->start; row < e->end; row++) {
    i64 size = e->sizes[row] + number_size(time_delta(e, row, e->start));
    size += length_size(row - e->start);
    room -= size + length_size(size);
    if (room < 0) return row - e->start;
  }
  return e->end - e->start;
}

/* The most bytes that length, timestamp delta and offset delta of a record take. */
enum { DELTAS_MAX = 10 + 10 + 5 };

/* Write the records from `start` to `end` as the content of one record batch, and set `out_size`. If
   `out` may be too small, set `out_size` to a sufficient size and return NEEDS_ROOM. */
EXPORT i64 eos_write(struct encoder *e) {
  if (e->start < 0 || e->start > e->end || e->end > e->rows) return INVALID;
  i64 needed = DELTAS_MAX * (e->end - e->start);
  for (i64 row = e->start; row < e->end; row++) needed += e->sizes[row];
  e->out_size = needed;
  if (needed > e->out_capacity) return NEEDS_ROOM;
  u8 *out = e->out;
  for (i64 row = e->start; row < e->end; row++) {
    u64 time = time_delta(e, row, e->start);
    u64 offset = zigzag(row - e->start);
    i64 count = e->counts ? e->counts[row] : 0;
    out = put_number(out, zigzag(e->sizes[row] + number_size(time) + number_size(offset)));
    *out++ = 0; /* attributes */
    out = put_number(put_number(out, time), offset);
    out = put_blob(put_blob(out, at(&e->key, row)), at(&e->value, row));
    out = put_number(out, zigzag(count));
    for (i64 i = 0; i < count; i++) {
      i64 each = e->first[row] + i;
      out = put_blob(put_blob(out, at(&e->name, each)), at(&e->text, each));
    }
  }
  e->out_size = out - e->out;
  return 0;
}

/* ---- partitions ---------------------------------------------------------------------------- */

static u32 murmur2(const u8 *data, i64 length) {
  const u32 m = 0x5bd1e995;
  u32 hash = 0x9747b28c ^ (u32)length;
  for (; length >= 4; length -= 4, data += 4) {
    u32 word = data[0] | (u32)data[1] << 8 | (u32)data[2] << 16 | (u32)data[3] << 24;
    word *= m;
    word ^= word >> 24;
    word *= m;
    hash = hash * m ^ word;
  }
  if (length > 2) hash ^= (u32)data[2] << 16;
  if (length > 1) hash ^= (u32)data[1] << 8;
  if (length > 0) hash = (hash ^ data[0]) * m;
  hash = (hash ^ hash >> 13) * m;
  return hash ^ hash >> 15;
}

/* Compute Kafka's hash of each key `data[start : start + length]`. */
EXPORT i64 eos_murmur2(const u8 *data, i64 size, const i64 *starts, const i64 *lengths, i64 rows,
                       u32 *hashes) {
  for (i64 row = 0; row < rows; row++) {
    i64 start = starts[row], length = lengths[row];
    if (start < 0 || length < 0 || length > size || start > size - length) return INVALID;
    hashes[row] = murmur2(data + start, length);
  }
  return 0;
}

/* Choose the partition of each key as Kafka's Java client does. Return how many keys are null; those
   have no partition. */
EXPORT i64 eos_partition(const struct source *key, i64 partitions, i64 *chosen) {
  i64 nulls = 0;
  if (partitions < 1 || partitions > I32_MAX) return INVALID;
  for (i64 row = 0; row < key->rows; row++) {
    struct field f;
    TRY(get(key, row, &f));
    if (f.length < 0) {
      nulls++;
      continue;
    }
    chosen[row] = (murmur2(f.data, f.length) & 0x7fffffff) % (u32)partitions;
  }
  return nulls;
}
