#include "parquet.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace recmap {
namespace {

// No footer has structs this deep.
constexpr int kMostDepth = 8;

// A bounded cursor over Thrift's compact protocol. After a failure it is at the end, and all that
// it reads is 0.
class Thrift {
 public:
  // Kinds of values. True and false have no bytes in a struct, and one in a list.
  enum Kind : uint8_t { kTrue = 1, kFalse, kByte, kInt16, kInt32, kInt64, kDouble, kBytes, kList };
  static constexpr uint8_t kStruct = 12;

  explicit Thrift(Bytes bytes) : at_(bytes.data()), end_(at_ + bytes.size()) {}

  bool failed() const { return failed_; }
  const uint8_t* position() const { return at_; }

  // Calls `read(number, kind)` for each field of a struct, which reads or skips its value.
  template <typename Read>
  void fields(Read read) {
    uint64_t number = 0;
    while (const uint8_t head = byte()) {
      number = head >> 4 != 0 ? number + (head >> 4) : static_cast<uint64_t>(zigzag());
      read(number, static_cast<uint8_t>(head & 15));
    }
  }

  // Calls `read(kind)` for each value of a list.
  template <typename Read>
  void list(uint8_t kind, Read read) {
    if (kind != kList) return fail();
    const uint8_t head = byte();
    const uint8_t inside = (head & 15) <= kFalse ? kByte : head & 15;
    uint64_t count = head >> 4;
    if (count == 15) count = varint();
    if (count > left()) return fail();  // every value has a byte or more
    for (; count > 0 && !failed_; --count) read(inside);
  }

  int64_t number(uint8_t kind) {
    if (kind == kInt16 || kind == kInt32 || kind == kInt64) return zigzag();
    fail();
    return 0;
  }

  void skip(uint8_t kind, int depth = kMostDepth) {
    if (depth == 0) return fail();
    switch (kind) {
      case kTrue:
      case kFalse:
        return;
      case kByte:
        return pass(1);
      case kInt16:
      case kInt32:
      case kInt64:
        varint();
        return;
      case kDouble:
        return pass(8);
      case kBytes:
        return pass(varint());
      case kList:
        return list(kind, [&](uint8_t inside) { skip(inside, depth - 1); });
      case kStruct:
        return fields([&](uint64_t, uint8_t inside) { skip(inside, depth - 1); });
      default:
        return fail();
    }
  }

  void fail() {
    failed_ = true;
    at_ = end_;
  }

 private:
  size_t left() const { return static_cast<size_t>(end_ - at_); }

  uint8_t byte() {
    if (at_ != end_) return *at_++;
    fail();
    return 0;
  }

  void pass(uint64_t size) {
    if (size > left()) return fail();
    at_ += size;
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const uint8_t next = byte();
      value |= static_cast<uint64_t>(next & 127) << (shift < 64 ? shift : 63);
      if (next < 128) return value;
    }
    fail();
    return 0;
  }

  int64_t zigzag() {
    const uint64_t value = varint();
    return static_cast<int64_t>(value >> 1 ^ (~(value & 1) + 1));
  }

  const uint8_t* at_;
  const uint8_t* end_;
  bool failed_ = false;
};

int64_t read_text_size(Thrift& in, uint8_t kind) {
  int64_t size = -1;
  if (kind != Thrift::kStruct) in.fail();
  in.fields([&](uint64_t number, uint8_t inside) {
    number == 1 ? void(size = in.number(inside)) : in.skip(inside);
  });
  return size;
}

ParquetChunk read_chunk(Thrift& in, int64_t group) {
  ParquetChunk chunk{group, -1, -1, -1, -1, -1, -1, 0, -1};
  int64_t stored = -1, dictionary = 0;
  in.fields([&](uint64_t number, uint8_t kind) {
    switch (number) {
      case 1:
        return void(chunk.type = in.number(kind));
      case 4:
        return void(chunk.codec = in.number(kind));
      case 5:
        return void(chunk.values = in.number(kind));
      case 6:
        return void(chunk.size = in.number(kind));
      case 7:
        return void(stored = in.number(kind));
      case 9:
        return void(chunk.begin = in.number(kind));
      case 11:
        return void(dictionary = in.number(kind));
      case 16:
        return void(chunk.text = read_text_size(in, kind));
      default:
        return in.skip(kind);
    }
  });
  if (dictionary != 0) {
    chunk.has_dictionary = 1;
    chunk.begin = std::min(chunk.begin, dictionary);
  }
  const int64_t least = std::min({chunk.type, chunk.values, chunk.size, chunk.begin, stored});
  if (least < 0 || stored > INT64_MAX - chunk.begin) in.fail();
  chunk.end = in.failed() ? 0 : chunk.begin + stored;
  return chunk;
}

// Counts the ones among levels of one bit.
int64_t one_bits(const uint8_t* packed, int64_t count) {
  int64_t ones = 0;
  for (; count >= 64; count -= 64, packed += 8) ones += std::popcount(load_le<uint64_t>(packed));
  for (; count >= 8; count -= 8) ones += std::popcount(*packed++);
  return count > 0 ? ones + std::popcount(static_cast<uint8_t>(*packed << (8 - count))) : ones;
}

// Counts the zeros among the first `count` of eight levels, which take `bits` bytes.
int64_t zeros_of_eight(const uint8_t* packed, int64_t count, int bits) {
  uint64_t word = 0;
  for (int i = 0; i < bits; ++i) word |= static_cast<uint64_t>(packed[i]) << (8 * i);
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  int64_t zeros = 0;
  for (int64_t i = 0; i < count; ++i) zeros += ((word >> (i * bits)) & mask) == 0 ? 1 : 0;
  return zeros;
}

// Reads a varint; false if the bytes end, or it is longer than any that counts levels.
bool read_head(Bytes bytes, size_t& at, uint64_t& head) {
  head = 0;
  for (int shift = 0; shift < 63; shift += 7) {
    if (at == bytes.size()) return false;
    const uint8_t byte = bytes[at++];
    head |= static_cast<uint64_t>(byte & 127) << shift;
    if (byte < 128) return true;
  }
  return false;
}

}  // namespace

std::optional<std::vector<ParquetChunk>> read_parquet_chunks(Bytes footer) {
  Thrift in(footer);
  std::vector<ParquetChunk> chunks;
  int64_t group = 0;
  in.fields([&](uint64_t number, uint8_t kind) {
    if (number != 4) return in.skip(kind);
    in.list(kind, [&](uint8_t row_group) {
      if (row_group != Thrift::kStruct) return in.fail();
      in.fields([&](uint64_t of_group, uint8_t columns) {
        if (of_group != 1) return in.skip(columns);
        in.list(columns, [&](uint8_t column) {
          if (column != Thrift::kStruct) return in.fail();
          const size_t before = chunks.size();
          in.fields([&](uint64_t of_column, uint8_t about) {
            if (of_column != 3) return in.skip(about);
            if (about != Thrift::kStruct) return in.fail();
            chunks.push_back(read_chunk(in, group));
          });
          if (chunks.size() != before + 1) in.fail();
        });
      });
      ++group;
    });
  });
  if (in.failed()) return std::nullopt;
  return chunks;
}

std::optional<ParquetPage> read_parquet_page(Bytes bytes) {
  Thrift in(bytes);
  ParquetPage page{0, -1, -1, -1, 0, -1, -1};
  in.fields([&](uint64_t number, uint8_t kind) {
    if (number >= 1 && number <= 3) {
      (number == 1 ? page.kind : number == 2 ? page.size : page.stored) = in.number(kind);
      return;
    }
    if ((number != 5 && number != 8) || kind != Thrift::kStruct) return in.skip(kind);
    const bool second = number == 8;
    page.values = -1;
    in.fields([&](uint64_t about, uint8_t inside) {
      if (about == 1) return void(page.values = in.number(inside));
      if (second && about == 3) return void(page.rows = in.number(inside));
      if (about == (second ? 4u : 2u)) return void(page.encoding = in.number(inside));
      in.skip(inside);
    });
    if (second && page.rows < 0) in.fail();
  });
  if (in.failed() || std::min({page.kind, page.size, page.stored, page.values}) < 0) return {};
  page.header = in.position() - bytes.data();
  return page;
}

int64_t count_zero_levels(Bytes levels, int64_t count, int bits) {
  int64_t zeros = 0;
  size_t at = 0;
  while (count > 0) {
    uint64_t head = 0;
    if (!read_head(levels, at, head) || head >> 1 == 0) return -1;
    const uint64_t times = head >> 1;
    if ((head & 1) == 0) {
      if (at == levels.size()) return -1;
      const auto some = static_cast<int64_t>(std::min(times, static_cast<uint64_t>(count)));
      if (levels[at++] == 0) zeros += some;
      count -= some;
      continue;
    }
    const uint64_t groups = std::min(times, (static_cast<uint64_t>(count) + 7) / 8);
    const auto size = static_cast<uint64_t>(bits);
    if ((levels.size() - at) / size < groups) return -1;
    const int64_t packed = std::min(static_cast<int64_t>(8 * groups), count);
    if (bits == 1) {
      zeros += packed - one_bits(levels.data() + at, packed);
      at += groups;
    } else {
      for (int64_t done = 0; done < packed; done += 8, at += size) {
        zeros += zeros_of_eight(levels.data() + at, std::min<int64_t>(8, packed - done), bits);
      }
    }
    count -= packed;
  }
  return zeros;
}

size_t snappy_front(Bytes stream, std::span<uint8_t> out) {
  size_t at = 0, made = 0;
  uint64_t whole = 0;
  if (!read_head(stream, at, whole)) return 0;
  while (made < out.size() && at < stream.size()) {
    const uint8_t tag = stream[at++];
    const size_t kind = tag & 3, room = out.size() - made;
    size_t extra = kind == 3 ? 4 : kind;  // bytes of the distance
    size_t n = kind == 1 ? 4 + (tag >> 2 & 7) : size_t{1} + (tag >> 2);
    if (kind == 0 && n > 60) extra = n - 60;  // bytes of the length, less one
    if (stream.size() - at < extra) break;
    size_t number = 0;
    for (size_t i = 0; i < extra; ++i) number |= static_cast<size_t>(stream[at++]) << (8 * i);
    if (kind == 0) {
      if (extra > 0) n = number + 1;
      n = std::min(n, room);
      if (n > stream.size() - at) break;
      std::memcpy(out.data() + made, stream.data() + at, n);
      at += n;
    } else {
      if (kind == 1) number |= static_cast<size_t>(tag >> 5) << 8;
      if (number == 0 || number > made) break;
      n = std::min(n, room);
      for (size_t i = 0; i < n; ++i) out[made + i] = out[made + i - number];
    }
    made += n;
  }
  return made;
}

}  // namespace recmap
