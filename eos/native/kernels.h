/* What all kernels share. They convert records of Kafka's format v2 to Arrow buffers and back.

   Plain C ABI: no allocation, no global state, no Python. A caller passes one struct of 64-bit fields
   by its address; eos/native/structs.py has the same structs. Every read is checked against the given
   length, because the bytes come from a broker. Every write is checked against the capacity that the
   caller gives. */

#ifndef EOS_KERNELS_H
#define EOS_KERNELS_H

#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t i32;
typedef int64_t i64;

#define EXPORT __attribute__((visibility("default")))

/* Raise it with every change of a struct or of a function's meaning. */
#define ABI_VERSION 1

struct field {
  const u8 *data;
  i64 length; /* -1 for a null */
};

#define TRY(expression)                \
  do {                                 \
    int error_ = (expression);         \
    if (error_) return error_;         \
  } while (0)

#endif
