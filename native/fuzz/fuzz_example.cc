#include "fuzz_records.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using recmap::Column;
  constexpr Column::Place kPlaces[] = {Column::Place::kFeatures, Column::Place::kAny};
  recmap::fuzz::fuzz_records({data, size}, kPlaces);
  return 0;
}
