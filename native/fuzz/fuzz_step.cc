// A record as steps: several steps read together, which continue where the last one ended, equal
// those that are read one by one.
#include <utility>

#include "fuzz_records.h"

namespace recmap::fuzz {
namespace {

Decoded decode_steps(const Buffer& file, uint64_t offset, const Column& column,
                     const std::vector<int64_t>& steps) {
  const std::vector<uint64_t> offsets(steps.size(), offset);
  const std::vector<uint8_t> stepped = {1};
  const std::vector<Column> columns = {column};
  return decode(file, offsets, columns, {.verify = false, .steps = {steps, stepped}}, [] {});
}

void fuzz_steps(Bytes bytes) {
  constexpr Column::Place kPlaces[] = {Column::Place::kFeatures};
  Input input(bytes);
  Column column = make_column('a', kPlaces, input);
  column.ragged = 0;
  std::vector<int64_t> steps;
  for (int i = 0; i < 4; ++i) steps.push_back(input.byte());
  const std::vector<Buffer> records = {Buffer(input.rest().begin(), input.rest().end())};
  const Buffer file = wire::framed(records);
  const uint64_t offset = wire::offsets_of(records)[0];
  std::vector<uint8_t> values;
  bool sound = true;
  for (const int64_t step : steps) {
    const Decoded one = decode_steps(file, offset, column, {step});
    if (one.fault) {
      sound = false;
      continue;
    }
    require_sound(column, one.columns[0], 1);
    append(values, one.columns[0].values);
  }
  const Decoded all = decode_steps(file, offset, column, steps);
  REQUIRE(!all.fault == sound);
  if (!sound) return;
  require_sound(column, all.columns[0], steps.size());
  REQUIRE(all.columns[0].values == values);
}

}  // namespace
}  // namespace recmap::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  recmap::fuzz::fuzz_steps({data, size});
  return 0;
}
