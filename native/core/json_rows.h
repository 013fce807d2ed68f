// Rows of JSON Lines: an object on each line, whose members are columns, and those of objects
// within, too. Strict: what RFC 8259 does not allow is a fault, and so is a key that an object has
// twice. NaN, Infinity and -Infinity are floats, as most programs write them.
// All functions are safe to call from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "text_values.h"

namespace recmap {

// Which keys lead to which columns.
class JsonColumns {
 public:
  explicit JsonColumns(std::span<const TextColumn> columns);

 private:
  friend class JsonParser;
  struct Member {
    int64_t column = -1;  // or an object
    int64_t object = -1;
  };
  struct Object {
    std::vector<std::string> keys;
    std::vector<Member> members;
    std::unordered_map<std::string, size_t> places;
  };

  std::vector<Object> objects_;
};

// Parses whole lines. Without `strict`, keys that no column has are skipped.
TextFault parse_json(Bytes text, const JsonColumns& columns, bool strict,
                     std::span<TextValues> values, uint64_t& rows);

}  // namespace recmap
