// The structs of the Arrow C data and stream interfaces, laid out as
// https://arrow.apache.org/docs/format/CDataInterface.html specifies. Other libraries read and
// write them, so nothing here may change.
#pragma once

#include <cstdint>

extern "C" {

struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  ArrowSchema** children;
  ArrowSchema* dictionary;
  void (*release)(ArrowSchema*);  // null once released
  void* private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;  // -1 if not known
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  ArrowArray** children;
  ArrowArray* dictionary;
  void (*release)(ArrowArray*);
  void* private_data;
};

struct ArrowArrayStream {
  // These return 0 or an errno. At the end of the stream, get_next() gives a released array.
  int (*get_schema)(ArrowArrayStream*, ArrowSchema*);
  int (*get_next)(ArrowArrayStream*, ArrowArray*);
  const char* (*get_last_error)(ArrowArrayStream*);
  void (*release)(ArrowArrayStream*);
  void* private_data;
};

}  // extern "C"

namespace recmap {

inline constexpr int64_t kArrowNullable = 2;  // in ArrowSchema::flags

}  // namespace recmap
