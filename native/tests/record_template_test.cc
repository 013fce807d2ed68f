// Files of many alike records, decoded at once and one by one: a single record repeats nothing.
#include "record_template.h"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "decode_all.h"
#include "wire_builder.h"

namespace recmap {
namespace {

using wire::Buffer;
using wire::entry;
using wire::example;
using wire::floats;
using wire::framed;
using wire::ints;
using wire::offsets_of;

class Random {
 public:
  explicit Random(uint32_t seed) : bits_(seed) {}
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(bits_()) % n; }

 private:
  std::mt19937 bits_;
};

Buffer random_record(Random& random, size_t width, bool odd) {
  std::vector<float> values(width + (odd && random.below(3) == 0));
  for (float& value : values) value = static_cast<float>(random.below(1000));
  const int64_t label = random.below(odd ? 300 : 100);
  if (odd && random.below(4) == 0) {
    return example(entry("label", ints({label})), entry("x", floats(values)));
  }
  return example(entry("x", floats(values)), entry("label", ints({label})));
}

// The fault of the first row that has one, and the rows before it.
Decoded one_by_one(Bytes file, const std::vector<uint64_t>& offsets,
                   const std::vector<Column>& columns, bool verify) {
  Decoded all;
  all.columns.resize(columns.size());
  for (size_t row = 0; row < offsets.size(); ++row) {
    const Decoded one = decode(file, {&offsets[row], 1}, columns, verify, 1, [] {});
    if (one.fault) {
      all.fault = one.fault;
      all.fault.row = row;
      return all;
    }
    for (size_t c = 0; c < columns.size(); ++c) {
      const std::vector<uint8_t>& values = one.columns[c].values;
      all.columns[c].values.insert(all.columns[c].values.end(), values.begin(), values.end());
    }
  }
  return all;
}

void check_same(const Decoded& found, const Decoded& expected) {
  CHECK_EQ(found.fault.code, expected.fault.code);
  if (expected.fault) {
    CHECK_EQ(found.fault.row, expected.fault.row);
    CHECK_EQ(found.fault.offset, expected.fault.offset);
    CHECK_EQ(found.fault.column, expected.fault.column);
    return;
  }
  for (size_t c = 0; c < expected.columns.size(); ++c) {
    CHECK(found.columns[c].values == expected.columns[c].values);
  }
}

TEST(AlikeRecordsDecodeAsEachOfThemDoes) {
  Random random(3);
  for (int round = 0; round < 300; ++round) {
    const size_t width = random.below(40);
    const uint32_t odd = random.below(3) * random.below(12);  // how many of 100 are
    std::vector<Buffer> records;
    for (uint32_t i = random.below(120); i != 0; --i) {
      records.push_back(random_record(random, width, random.below(100) < odd));
    }
    Buffer file = framed(records);
    std::vector<uint64_t> offsets = offsets_of(records);
    if (random.below(2) == 0) {  // gathered, some twice
      for (uint64_t& offset : offsets) {
        if (random.below(2) == 0) offset = offsets[random.below(uint32_t(offsets.size()))];
      }
    }
    if (!file.empty() && random.below(3) == 0) {
      file[random.below(uint32_t(file.size()))] ^= uint8_t(1u << random.below(8));
    }
    if (!file.empty() && random.below(10) == 0) file.resize(file.size() - 1);
    const Dtype labels[] = {Dtype::kInt64, Dtype::kInt32, Dtype::kUint8, Dtype::kBool,
                            Dtype::kFloat64};
    std::vector<Column> columns = {column_of("x", Dtype::kFloat32, width)};
    if (random.below(4) != 0) columns.push_back(column_of("label", labels[random.below(5)]));
    if (random.below(8) == 0) columns.push_back(column_of("x", Dtype::kFloat64, width));
    for (const bool verify : {true, false}) {
      const size_t threads = 1 + random.below(3);
      check_same(decode(file, offsets, columns, verify, threads, [] {}),
                 one_by_one(file, offsets, columns, verify));
    }
  }
}

TEST(ConsecutiveRowsNeedNoOffsets) {
  Random random(5);
  for (int round = 0; round < 50; ++round) {
    std::vector<Buffer> records;
    for (int i = 0; i < 60; ++i) records.push_back(random_record(random, 5, false));
    Buffer file = framed(records);
    const std::vector<uint64_t> offsets = offsets_of(records);
    if (random.below(2) == 0) file[random.below(uint32_t(file.size()))] ^= 1;
    const std::vector<Column> columns = {column_of("x", Dtype::kFloat32, 5),
                                         column_of("label", Dtype::kInt64)};
    const uint64_t first = random.below(60);
    const uint64_t count = 1 + random.below(uint32_t(60 - first));
    const Decoded expected = decode(file, std::span(offsets).subspan(first, count), columns);
    const IndexedFile indexed{.bytes = file, .stride = offsets[1]};
    std::vector<uint8_t> x(count * 20), label(count * 8);
    std::vector<ColumnBuffers> buffers(2);
    buffers[0].values = x;
    buffers[1].values = label;
    Decoder decoder({.files = {&indexed, 1}, .strided = {first, count}}, columns,
                    {.verify = true, .threads = 1 + random.below(3)});
    const Fault fault = decoder.parse(buffers);
    CHECK_EQ(fault.code, expected.fault.code);
    CHECK_EQ(fault.row, expected.fault.row);
    CHECK_EQ(fault.offset, expected.fault.offset);
    if (fault) continue;
    CHECK(x == expected.columns[0].values);
    CHECK(label == expected.columns[1].values);
  }
}

// A record of another length is a fault, however sound it is and whatever follows it.
TEST(ConsecutiveRowsFillTheirPlaces) {
  const std::vector<Column> columns = {column_of("x", Dtype::kFloat32, 2)};
  const auto record = [](size_t rest) {
    return example(entry("x", floats({1, 2})), entry("y", ints(std::vector<int64_t>(rest, 1))));
  };
  constexpr size_t kRest = 9;
  const uint64_t stride = framed({record(kRest)}).size();
  for (const size_t lead : {0, 5}) {
    for (const size_t last : {0, 1, 2, 3, 20, 39}) {
      for (const size_t rest : {kRest, kRest + 5, kRest - 1, kRest + size_t(stride)}) {
        std::vector<Buffer> records(last + 1, record(kRest));
        records[0] = record(kRest + lead);
        records[last] = record(rest);
        const Buffer file = framed(records);
        const IndexedFile indexed{.bytes = file, .stride = stride, .lead = lead};
        for (const size_t first : {size_t{0}, last / 2, last}) {
          for (const bool verify : {true, false}) {
            const size_t count = last + 1 - first;
            std::vector<uint8_t> x(count * 8);
            std::vector<ColumnBuffers> buffers(1);
            buffers[0].values = x;
            Decoder decoder({.files = {&indexed, 1}, .strided = {first, count}}, columns,
                            {.verify = verify});
            const Fault fault = decoder.parse(buffers);
            if (rest == kRest + (last == 0 ? lead : 0)) {
              CHECK_EQ(fault.code, FaultCode::kNone);
            } else {
              CHECK_EQ(fault.code, FaultCode::kChanged);
              CHECK_EQ(fault.row, count - 1);
              CHECK_EQ(fault.offset, strided_offset(last, stride, lead));
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace recmap
