/* Feeds damaged record batches and random columns to the kernels, for sanitizers to watch.

   Usage: driver CORPUS ROUNDS SEED. The corpus has sound batches: a count of records and a size, both
   64-bit, then the uncompressed records. Each buffer is exactly as large as the kernels may use, so the
   first byte beyond it is reported. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../eos/native/decode.c"
#include "../../eos/native/encode.c"
#include "../../eos/native/dedup.c"
#include "../../eos/native/json.c"
#include "../../eos/native/json_write.c"

static u64 state;

static u64 next_random(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

static i64 below(i64 limit) { return (i64)(next_random() % (u64)limit); }

static void require(int is_true, const char *what) {
  if (is_true) return;
  fprintf(stderr, "%s\n", what);
  abort();
}

/* ---- all memory of a round ----------------------------------------------------------------- */

static void *taken[4096];
static int taken_count;

static void *take(i64 size) {
  require(taken_count < 4096, "too many buffers in a round");
  void *found = malloc(size > 0 ? (size_t)size : 1);
  require(found != NULL, "out of memory");
  return taken[taken_count++] = found;
}

static void free_all(void) {
  while (taken_count) free(taken[--taken_count]);
}

/* ---- decode -------------------------------------------------------------------------------- */

static void add_column(struct column *c, i64 rows, i64 bytes) {
  c->offsets = take(4 * (rows + 1));
  c->data = take(bytes);
  c->valid = take(rows / 8 + 1);
  c->offsets[0] = 0;
  c->used = c->nulls = 0;
}

static void add_buffers(struct decoder *d, i64 rows, i64 bytes) {
  d->rows_max = rows;
  d->bytes_max = bytes;
  add_column(&d->key, rows, bytes);
  add_column(&d->value, rows, bytes);
  d->offset = take(8 * rows);
  d->timestamp = take(8 * rows);
  d->timestamp_type = take(4 * rows);
  d->list = NULL;
  d->rows = d->bytes = d->headers = d->rows_with_headers = 0;
}

static void add_headers(struct decoder *d) {
  i64 count = d->bytes_max / HEADER_COST;
  d->list = take(4 * (d->rows_max + 1));
  d->list_valid = take(d->rows_max / 8 + 1);
  memset(d->list, 0, (size_t)(4 * (d->rows + 1)));
  memset(d->list_valid, 0, (size_t)(d->rows / 8 + 1));
  add_column(&d->name, count, d->bytes_max);
  add_column(&d->header_value, count, d->bytes_max);
}

static void check_column(const struct column *c, i64 rows, i64 bytes_max) {
  require(c->used <= bytes_max && c->offsets[rows] == c->used, "a column's end");
  for (i64 i = 0; i < rows; i++) require(c->offsets[i] <= c->offsets[i + 1], "an offset");
}

static void check_rows(const struct decoder *d) {
  require(d->rows <= d->rows_max && d->bytes <= d->bytes_max, "the limits");
  check_column(&d->key, d->rows, d->bytes_max);
  check_column(&d->value, d->rows, d->bytes_max);
  if (!d->list) return;
  require(d->list[d->rows] == d->headers, "the lists' end");
  check_column(&d->name, d->headers, d->bytes_max);
  check_column(&d->header_value, d->headers, d->bytes_max);
}

static i64 damage(u8 *data, i64 size) {
  static const u8 numbers[][10] = {
      {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, /* the smallest number */
      {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, /* the largest */
      {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, /* more than 64 bits */
      {0xfe, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 0, 0},                /* 2^31 - 1 */
      {0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0},                            /* -1 */
      {0xff, 0x01, 0, 0, 0, 0, 0, 0, 0, 0},                         /* -128 */
  };
  for (i64 times = below(4); size && times > 0; times--) {
    i64 at = below(size);
    switch (below(4)) {
      case 0: data[at] ^= (u8)(1 << below(8)); break;
      case 1: data[at] = (u8)next_random(); break;
      case 2: size = at; break;
      default: {
        const u8 *number = numbers[below(6)];
        i64 count = size - at < 10 ? size - at : 10;
        memcpy(data + at, number, (size_t)(below(2) ? count : 1));
      }
    }
  }
  return size;
}

static i64 decode_damaged(const u8 *sound, i64 size, i64 count) {
  u8 *damaged = take(size);
  memcpy(damaged, sound, (size_t)size);
  size = damage(damaged, size);
  u8 *exact = take(size);
  memcpy(exact, damaged, (size_t)size);
  struct decoder d = {0};
  d.records = exact;
  d.length = size;
  d.count = below(8) ? count : below(1 << 20);
  d.base_offset = below(4) ? below(1000) : INT64_MAX - below(20);
  d.delta_max = below(8) ? count : below(2000);
  d.first_ms = below(8) ? below(1 << 30) : (i64)next_random();
  d.is_append_time = below(2);
  d.append_ms = below(8) ? below(1 << 30) : (i64)next_random();
  d.start = d.base_offset - below(2) * below(6);
  d.end = below(2) ? INT64_MAX : below(30);
  add_buffers(&d, 1 + below(12), 1 + below(below(2) ? 40 : 4000));
  for (i64 rows = 0;;) {
    i64 result = eos_decode(&d);
    check_rows(&d);
    if (result == NEEDS_HEADERS) {
      require(d.list == NULL, "headers twice");
      add_headers(&d);
    } else if (result == FULL) {
      require(d.rows > 0, "full without rows");
      rows += d.rows;
      add_buffers(&d, 1 + below(12), 1 + below(4000));
    } else if (result == TOO_LARGE) {
      require(d.rows == 0 && d.record_bytes > d.bytes_max, "too large");
      add_buffers(&d, 1, d.record_bytes);
    } else {
      require(result == DONE || (result == BROKEN && d.error > 0), "a result");
      return rows + d.rows;
    }
  }
}

/* ---- encode -------------------------------------------------------------------------------- */

/* A column of random values, perhaps with an offset that is not valid. */
static struct source random_source(i64 rows, i64 longest, int is_damaged) {
  struct source s = {0};
  i32 *offsets = take(4 * (rows + 1));
  s.first_bit = below(9);
  u8 *valid = take((s.first_bit + rows) / 8 + 1);
  offsets[0] = (i32)below(3);
  for (i64 i = 0; i < rows; i++) offsets[i + 1] = offsets[i] + (i32)below(longest + 1);
  for (i64 i = 0; i <= (s.first_bit + rows) / 8; i++) valid[i] = (u8)next_random();
  s.size = offsets[rows];
  u8 *data = take(s.size);
  for (i64 i = 0; i < s.size; i++) data[i] = (u8)i;
  if (is_damaged && rows) offsets[below(rows + 1)] = (i32)next_random();
  s.offsets = offsets;
  s.data = data;
  s.valid = below(2) ? valid : NULL;
  s.rows = rows;
  return s;
}

static struct sorted room_for(struct sorted s, i64 rows) {
  s.lengths = take(4 * rows);
  s.offsets = take(4 * (rows + 1));
  s.data = take(s.size);
  return s;
}

static void random_headers(struct grouping *g, int is_damaged) {
  i32 *counts = take(4 * g->rows), *first = take(4 * g->rows);
  i64 elements = 0;
  for (i64 i = 0; i < g->rows; i++) {
    first[i] = (i32)elements;
    counts[i] = (i32)below(3);
    elements += counts[i];
  }
  if (is_damaged && g->rows) (below(2) ? counts : first)[below(g->rows)] = (i32)next_random();
  g->header_counts = counts;
  g->first_name = g->first_text = first;
  g->name = random_source(elements, 9, 0);
  if (below(4)) g->name.valid = NULL; /* a null name is refused */
  g->text = random_source(elements, 20, is_damaged && below(2));
}

static void write_all(struct grouping *g) {
  struct encoder e = {0};
  e.rows = g->rows;
  e.key = g->sorted_key;
  e.value = g->sorted_value;
  e.timestamps = g->sorted_timestamps;
  e.counts = g->sorted_counts;
  e.first = g->sorted_first;
  e.name = g->sorted_name;
  e.text = g->sorted_text;
  e.sizes = take(8 * e.rows);
  require(eos_measure(&e) == 0, "measure");
  while (e.start < g->rows) {
    i64 room = below(400);
    e.end = g->rows;
    i64 fits = eos_fit(&e, room);
    e.end = e.start + (fits ? fits : 1);
    require(eos_write(&e) == NEEDS_ROOM, "room");
    e.out_capacity = e.out_size;
    e.out = take(e.out_size);
    require(eos_write(&e) == 0 && (!fits || e.out_size <= room), "write");
    e.out_capacity = 0;
    e.start = e.end;
  }
}

static i64 encode_random(void) {
  struct grouping g = {0};
  int is_damaged = below(3) == 0;
  g.rows = below(40);
  g.targets = 1 + below(5);
  i64 *target = take(8 * g.rows), *times = take(8 * g.rows);
  for (i64 i = 0; i < g.rows; i++) {
    target[i] = below(g.targets);
    times[i] = below(2) ? below(1 << 20) : (i64)next_random();
  }
  if (is_damaged && g.rows && below(4) == 0) target[below(g.rows)] = (i64)next_random();
  g.target = below(4) ? target : NULL;
  g.key = random_source(g.rows, 20, is_damaged && below(2));
  g.value = random_source(g.rows, below(8) ? 70 : 9000, is_damaged && below(2));
  g.timestamps = below(2) ? times : NULL;
  if (below(2)) random_headers(&g, is_damaged);
  g.places = take(8 * TOTALS * g.targets);
  i64 result = eos_count(&g);
  if (result) {
    require(result == NULL_NAME || (result == INVALID && is_damaged), "sound columns are refused");
    return 0;
  }
  g.order = take(8 * g.rows);
  g.sorted_key = room_for(g.sorted_key, g.rows);
  g.sorted_value = room_for(g.sorted_value, g.rows);
  if (g.timestamps) g.sorted_timestamps = take(8 * g.rows);
  if (g.header_counts) {
    g.sorted_counts = take(4 * g.rows);
    g.sorted_first = take(8 * (g.rows + 1));
    g.sorted_name = room_for(g.sorted_name, g.headers);
    g.sorted_text = room_for(g.sorted_text, g.headers);
  }
  require(eos_group(&g) == 0, "group");
  write_all(&g);
  return g.rows;
}

static i64 hash_random(void) {
  i64 size = below(60), start = below(80) - 10, length = below(80) - 10;
  u8 *data = take(size);
  memset(data, 7, (size_t)size);
  u32 hash;
  i64 result = eos_murmur2(data, size, &start, &length, 1, &hash);
  int is_inside = start >= 0 && length >= 0 && start + length <= size;
  require(result == (is_inside ? 0 : INVALID), "hash");
  return is_inside;
}

static i64 partition_random(void) {
  int is_damaged = below(3) == 0;
  struct source key = random_source(below(40), 30, is_damaged);
  i64 count = below(3) ? 1 + below(300) : (i64)next_random(), *chosen = take(8 * key.rows);
  for (i64 row = 0; row < key.rows; row++) chosen[row] = -1;
  i64 nulls = eos_partition(&key, count, chosen);
  require(nulls >= 0 || is_damaged || count < 1 || count > I32_MAX, "sound keys are refused");
  for (i64 row = 0; nulls >= 0 && row < key.rows; row++) {
    nulls -= chosen[row] == -1;
    require(chosen[row] < count, "a partition");
  }
  require(nulls <= 0, "nulls");
  return key.rows;
}

/* ---- dedup --------------------------------------------------------------------------------- */

/* Bytes with few values, so that many names, numbers and ids are equal. */
static struct source few_values(i64 rows, i64 longest, int is_damaged) {
  static const u8 bytes[] = "pes0123456789-";
  struct source s = random_source(rows, longest, is_damaged);
  u8 *data = take(s.size);
  for (i64 i = 0; i < s.size; i++) data[i] = bytes[below(below(9) ? 13 : 14)];
  s.data = data;
  return s;
}

static i64 stamps_random(void) {
  int is_damaged = below(3) == 0;
  struct stamping s = {0};
  i64 elements = below(60), *lists;
  s.rows = below(20);
  s.lists = lists = take(8 * (s.rows + 1));
  for (i64 i = 0, at = 0; i <= s.rows; i++) {
    lists[i] = at;
    at += below(elements - at + 1 < 5 ? elements - at + 1 : 5);
  }
  if (is_damaged) lists[below(s.rows + 1)] = below(2) ? (i64)next_random() : below(99) - 9;
  s.name = few_values(elements, 2, is_damaged && below(2));
  s.value = few_values(elements, below(2) ? 2 : 22, is_damaged && below(2));
  for (int part = 0; part < PARTS; part++) {
    u8 *name = take(1);
    *name = "pes"[part];
    s.wanted[part] = (struct field){name, 1};
    s.valid[part] = take((s.rows + 7) / 8);
    s.numbers[part] = part == ID ? NULL : take(8 * s.rows);
  }
  s.id_offsets = take(4 * (s.rows + 1));
  int is_small = below(4) == 0;
  s.id_bytes = is_small ? below(s.value.size + 1) : s.value.size;
  s.id_data = take(s.id_bytes);
  i64 result = eos_stamps(&s);
  int is_sound = !is_damaged && !is_small;
  require(result == 0 || result == NOT_PLAIN || (result == INVALID && !is_sound), "sound headers");
  for (i64 i = 0; !result && i < s.rows; i++)
    require(s.id_offsets[i] <= s.id_offsets[i + 1] && s.numbers[EPOCH][i] >= 0, "a stamp");
  return result ? 0 : s.rows;
}

static i64 number_random(void) {
  int is_damaged = below(3) == 0;
  struct numbering x = {0};
  x.known = few_values(below(40), below(2) ? 1 : 20, is_damaged && below(2));
  x.known.valid = NULL;
  x.ids = few_values(below(40), below(2) ? 2 : 20, is_damaged && below(2));
  x.seed = below(3) ? next_random() | 1 : 0; /* 0: all hashes are equal */
  x.slot_count = 8;
  while (below(20) && x.slot_count < 2 * (x.known.rows + x.ids.rows + 1)) x.slot_count *= 2;
  x.slots = take((i64)sizeof(struct slot) * x.slot_count);
  memset(x.slots, 0, sizeof(struct slot) * (usize)x.slot_count);
  x.is_adding = below(2);
  x.numbers = take(8 * x.ids.rows);
  x.firsts = take(8 * x.ids.rows);
  i64 result = eos_number(&x);
  int is_small = x.slot_count < 2 * (x.known.rows + x.ids.rows + 1);
  require(result == (is_small ? NEEDS_ROOM : 0) || (result == INVALID && is_damaged), "sound ids");
  for (i64 i = 0; !result && i < x.ids.rows; i++)
    require(x.numbers[i] >= -1 && x.numbers[i] < x.known.rows + x.added, "a number");
  return result ? 0 : x.ids.rows;
}

static i64 crc_random(void) {
  static u32 tables[8][256];
  int is_damaged = below(3) == 0;
  struct source texts = random_source(below(40), 40, is_damaged);
  i64 result = eos_crc32(&texts, (const u32(*)[256])tables, take(4 * texts.rows));
  require(result == 0 || (result == INVALID && is_damaged), "sound texts");
  return texts.rows;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static const char *const pieces[] = {
    "{", "}", "[", "]", ",", ":", "\"", "\"a\":", "\"b\" : ", "\"other\":", "null", "true", "false",
    "0", "-0", "1.5", "-17", "123456789012345678", "9223372036854775807", "1e22", "12345678901234567e-30",
    "0.000001", "1e-300", "\"\\u00e9\"", "\"\\ud83d\\ude00\"", "\"\\ud83d\"", "\"\xc3\xa9\"", "\"\\\\n\"",
    "\"x\"", "\"2026-01-31\"", "\"2026-01-31T23:59:59.123456+01:30\"", " ", "\\", "\xf0\x9f", "{\"a\":[",
};

/* An object of the two columns, perhaps damaged, or any pieces of JSON one after the other. */
static i64 random_json(u8 *out, i64 room) {
  i64 size = 0, of_pieces = (i64)(sizeof pieces / sizeof *pieces);
  for (i64 i = 0, many = below(12), is_object = below(3); i <= many; i++) {
    const char *piece = pieces[below(of_pieces)];
    if (is_object) piece = i == 0 ? "{" : i == many ? "}" : i % 3 == 1 ? pieces[7 + below(3)]
                           : i % 3 == 2 ? pieces[10 + below(of_pieces - 14)] : ",";
    i64 length = (i64)strlen(piece);
    if (length > room - size) break;
    memcpy(out + size, piece, (size_t)length);
    size += length;
  }
  return below(4) ? size : damage(out, size);
}

static struct source random_texts(int is_damaged) {
  static u8 text[4096];
  struct source s = random_source(below(12), 0, 0);
  i32 *offsets = take(4 * (s.rows + 1));
  u8 *all = take(s.rows * 512);
  offsets[0] = 0;
  for (i64 i = 0; i < s.rows; i++) {
    i64 size = random_json(text, 512);
    memcpy(all + offsets[i], text, (size_t)size);
    offsets[i + 1] = offsets[i] + (i32)size;
  }
  s.size = offsets[s.rows];
  u8 *exact = take(s.size);
  memcpy(exact, all, (size_t)s.size);
  if (is_damaged && s.rows) offsets[below(s.rows + 1)] = (i32)next_random();
  s.data = exact;
  s.offsets = offsets;
  return s;
}

static i64 json_random(void) {
  static const u64 powers[] = {0, 1ULL << 63, 0, 0xa000000000000000, ~0ULL, ~0ULL};
  int is_damaged = below(8) == 0;
  struct json_column columns[2] = {0};
  struct json_reader r = {random_texts(is_damaged), columns, 2, powers, below(9) - 4, 3, NULL, 0};
  i64 rows = r.texts.rows;
  r.is_left = take(rows / 8 + 1);
  for (int i = 0; i < 2; i++) {
    struct json_column *c = columns + i;
    u8 *name = take(1);
    *name = "ab"[i];
    c->name = name;
    c->name_length = 1;
    c->kind = below(TIME + 1);
    c->is_required = below(4) == 0;
    c->precision = below(39);
    c->scale = below(19);
    c->valid = take(rows / 8 + 1);
    if (c->kind == TEXT) {
      c->offsets = take(4 * (rows + 1));
      c->capacity = below(3) ? r.texts.size : below(9);
      c->data = take(c->capacity);
    } else {
      c->values = take(c->kind == BOOL ? rows / 8 + 1 : rows * sizes[c->kind]);
    }
  }
  i64 result = eos_json(&r);
  require(result == 0 || (result == INVALID && is_damaged), "sound JSON texts");
  for (int i = 0; !result && i < 2; i++) {
    const struct json_column *c = columns + i;
    require(c->nulls >= r.left && c->nulls <= rows && c->used <= c->capacity, "a JSON column");
    for (i64 row = 0; c->kind == TEXT && row < rows; row++)
      require(c->offsets[row] <= c->offsets[row + 1], "an offset of JSON texts");
  }
  return result ? 0 : rows - r.left;
}

/* ---- JSON that is written ------------------------------------------------------------------ */

static struct source random_decimals(i64 rows) {
  static const char *numbers[] = {"nan", "inf", "-inf", "0.0", "-0.0", "1.5", "-12.25", "1e-07", "1e+300",
                                  "123456789.125", "100000000000000.0", "5e-324", "1.2.3", "1e", "e", "", "-", "x"};
  struct source s = {0};
  i32 *offsets = take(4 * (rows + 1));
  u8 *all = take(rows * 24);
  offsets[0] = 0;
  for (i64 i = 0; i < rows; i++) {
    const char *number = numbers[below(sizeof numbers / sizeof *numbers)];
    memcpy(all + offsets[i], number, strlen(number));
    offsets[i + 1] = offsets[i] + (i32)strlen(number);
  }
  u8 *exact = take(offsets[rows]);
  memcpy(exact, all, (size_t)offsets[rows]);
  s.offsets = offsets, s.data = exact, s.size = offsets[rows], s.rows = rows;
  return s;
}

static i64 json_written_random(void) {
  static const i64 widths[] = {0, 1, 2, 4, 8};
  struct source texts = random_texts(below(8) == 0);
  i64 rows = texts.rows;
  struct written_column columns[3] = {0};
  struct json_writer w = {.rows = rows, .columns = columns, .column_count = below(4)};
  for (int i = 0; i < 3; i++) {
    struct written_column *c = columns + i;
    c->name = (const u8 *)"\"a\":";
    c->name_length = 4;
    c->kind = below(AS_TEXTS + 1);
    if (c->kind == AS_TEXTS) {
      c->texts = texts;
    } else if (c->kind == AS_DECIMALS) {
      c->texts = random_decimals(rows);
    } else {
      i64 bytes = c->kind == AS_BITS ? rows / 8 + 1 : rows * widths[c->kind];
      u8 *values = take(bytes), *valid = take(rows / 8 + 1);
      for (i64 at = 0; at < bytes; at++) values[at] = (u8)next_random();
      for (i64 at = 0; at < rows / 8 + 1; at++) valid[at] = (u8)next_random();
      c->values = values;
      if (below(2)) c->valid = valid;
    }
  }
  w.offsets = take(4 * (rows + 1));
  w.capacity = below(2) ? 8192 : below(200);
  w.data = take(w.capacity);
  i64 result = eos_json_write(&w);
  require(result == 0 || result == NEEDS_ROOM || result == INVALID, "a result of written JSON");
  require(result || w.offsets[rows] <= w.capacity, "the size of written JSON");
  return result ? 0 : rows;
}

int main(int count, char **words) {
  require(count == 4, "usage: driver CORPUS ROUNDS SEED");
  FILE *corpus = fopen(words[1], "rb");
  require(corpus != NULL, "no corpus");
  i64 rounds = atoll(words[2]), records = 0, rows = 0, validated = 0, parsed = 0,
      written = 0;
  state = strtoull(words[3], NULL, 10) * 2 + 1;
  i64 head[2];
  while (fread(head, sizeof head, 1, corpus) == 1) {
    u8 *sound = malloc((size_t)head[1] + 1);
    require(fread(sound, 1, (size_t)head[1], corpus) == (size_t)head[1], "a short corpus");
    for (i64 round = 0; round < rounds; round++) {
      records += decode_damaged(sound, head[1], head[0]);
      rows += encode_random() + hash_random() + partition_random();
      validated += stamps_random() + number_random() + crc_random();
      parsed += json_random();
      written += json_written_random();
      free_all();
    }
    free(sound);
  }
  printf("%lld records decoded, %lld rows encoded, %lld validated, %lld parsed, %lld written\n",
         (long long)records, (long long)rows, (long long)validated, (long long)parsed, (long long)written);
  return 0;
}
