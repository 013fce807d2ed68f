// Any bytes as a file: all ways to find its records agree.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "frame.h"
#include "fuzz_input.h"
#include "locate.h"
#include "scan.h"
#include "wire_builder.h"

namespace recmap {
namespace {

using fuzz::Input;
using wire::Buffer;

// The input as records, so that most have the right CRCs: each begins with its
// length in a byte. Returns the file and how many records it has.
Buffer frame_input(Input& input, uint64_t& records) {
  std::vector<Buffer> all;
  while (!input.rest().empty()) {
    const size_t length = input.byte();
    Buffer record;
    while (record.size() < length && !input.rest().empty()) record.push_back(input.byte());
    all.push_back(std::move(record));
  }
  records = all.size();
  return wire::framed(all);
}

void check_scan(Bytes file, const Scan& found, uint64_t every) {
  REQUIRE(found.end <= file.size());
  REQUIRE(found.fault || found.end == file.size());
  REQUIRE(found.fault.row == found.records);
  REQUIRE(!found.fault || found.fault.offset == found.end);
  REQUIRE(found.min_length <= found.max_length);
  const uint64_t anchors = every == 0 ? 0 : (found.records + every - 1) / every;
  REQUIRE(found.anchor_rows.size() == anchors && found.anchor_offsets.size() == anchors);
}

void check_same(const Scan& a, const Scan& b) {
  REQUIRE(a.begin == b.begin && a.end == b.end && a.records == b.records);
  REQUIRE(a.min_length == b.min_length && a.max_length == b.max_length);
  REQUIRE(a.anchor_rows == b.anchor_rows && a.anchor_offsets == b.anchor_offsets);
  REQUIRE(a.fault.code == b.fault.code && a.fault.row == b.fault.row);
  REQUIRE(a.fault.expected == b.fault.expected && a.fault.found == b.fault.found);
}

void check_find(Bytes file, uint64_t begin, uint64_t stop) {
  const uint64_t found = find_record(file, begin, stop);
  stop = std::min<uint64_t>(stop, file.size());
  REQUIRE(found <= stop);
  const auto sound_at = [&](uint64_t at) {
    Bytes data;
    Fault ignored;
    return read_frame(file, at, true, data, ignored);
  };
  for (uint64_t at = begin; at < found; ++at) REQUIRE(!sound_at(at));
  REQUIRE(found == stop || sound_at(found));
}

void check_locate(Bytes file, const Scan& all, uint64_t every, Bytes rows) {
  const Scan some = scan(file, {.anchor_every = every});
  const IndexedFile indexed{
      .bytes = file, .anchor_rows = some.anchor_rows, .anchor_offsets = some.anchor_offsets};
  std::vector<int64_t> wanted;
  for (const uint8_t row : rows) wanted.push_back(static_cast<int8_t>(row));
  std::vector<uint64_t> offsets(wanted.size());
  const Fault fault = locate({&indexed, 1}, {}, wanted, offsets);
  REQUIRE(!fault || fault.row < wanted.size());
  const size_t located = fault ? fault.row : wanted.size();
  for (size_t i = 0; i < located; ++i) {
    const auto row = static_cast<uint64_t>(wanted[i]);
    REQUIRE(row <= all.records);
    REQUIRE(offsets[i] == (row == all.records ? all.end : all.anchor_offsets[row]));
  }
  REQUIRE(!fault || static_cast<uint64_t>(wanted[located]) >= all.records);
}

// The file between two records so large that a scan by two threads enters it at
// byte `entry`. The buffer is reused, because making a new one would take most of a run.
Bytes surround(const Buffer& file, uint64_t entry) {
  constexpr uint64_t kBefore = uint64_t{1} << 20;
  static Buffer all = wire::framed({Buffer(kBefore - kFrameSize)});
  const uint64_t after = kBefore + file.size();
  all.resize(2 * (kBefore + entry));
  std::fill(all.begin() + kBefore, all.end(), uint8_t{0});
  std::copy(file.begin(), file.end(), all.begin() + kBefore);
  const uint64_t length = all.size() - after - kFrameSize;
  write_header(all.data() + after, length);
  write_footer(all.data() + all.size() - kFooterSize,
               Bytes(all).subspan(after + kHeaderSize, length));
  return all;
}

}  // namespace
}  // namespace recmap

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace recmap;
  Input input(Bytes(data, size));
  const uint8_t flags = input.byte();
  const bool framed = (flags & 1) != 0;
  const bool damage = (flags & 2) != 0;
  const bool large = (flags >> 3) % 8 == 7;
  const bool verify = (flags & 4) != 0 && !large;  // CRCs of megabytes would take most of a run
  const uint64_t every = input.byte();
  const uint64_t at = input.pair();
  const uint8_t flip = input.byte();
  const Bytes rows = input.rest().first(std::min<size_t>(input.rest().size(), 8));

  uint64_t records = 0;
  Buffer file =
      framed ? frame_input(input, records) : Buffer(input.rest().begin(), input.rest().end());
  if (damage && !file.empty()) file[at % file.size()] ^= flip;

  const Scan all = scan(file, {.anchor_every = 1, .verify = verify});
  check_scan(file, all, 1);
  check_scan(file, scan(file, {.anchor_every = every, .verify = verify}), every);
  if (framed && !damage) REQUIRE(!all.fault && all.records == records);
  check_find(file, at, file.size());
  check_find(file, 0, at);
  check_locate(file, scan(file, {.anchor_every = 1}), every + 1, rows);
  const Bytes whole = large ? surround(file, at % (file.size() + 1)) : Bytes(file);
  check_same(scan(whole, {.anchor_every = 1, .verify = verify, .threads = 2}),
             scan(whole, {.anchor_every = 1, .verify = verify}));
  return 0;
}
