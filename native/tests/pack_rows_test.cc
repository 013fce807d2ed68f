// Short sequences packed into rows.
#include "pack_rows.h"

#include <cstdint>
#include <vector>

#include "check.h"

namespace recmap {
namespace {

using Numbers = std::vector<int64_t>;

TEST(SequencesGoIntoTheFullestRowWithRoom) {
  RowFitter fitter(4, 2);
  Places places;
  CHECK(fitter.place(Numbers{3, 2, 1, 3, 2}, places));
  CHECK((places.rows == Numbers{0, 1, 0, 2, 1}));
  CHECK((places.begins == Numbers{0, 0, 3, 0, 2}));
  CHECK((places.finished == Numbers{0, 1}));
  CHECK((places.after == Numbers{3, 5}));
  fitter.finish(places);
  CHECK((places.finished == Numbers{0, 1, 2}));
}

TEST(TheFullestRowIsFinishedIfNoneHasRoom) {
  RowFitter fitter(4, 2);
  Places places;
  CHECK(fitter.place(Numbers{2, 3, 3}, places));
  CHECK((places.rows == Numbers{0, 1, 2}));
  CHECK((places.finished == Numbers{1}));
  CHECK((places.after == Numbers{2}));
}

TEST(LongSequencesArePlacedFirstIfSorted) {
  RowFitter fitter(4, 1);
  Places places;
  CHECK(fitter.place_sorted(Numbers{1, 3, 2, 2}, places));
  CHECK((places.rows == Numbers{0, 0, 1, 1}));
  CHECK((places.begins == Numbers{3, 0, 0, 2}));
  CHECK((places.finished == Numbers{0, 1}));
  CHECK((places.after == Numbers{4, 4}));
}

TEST(RowsAreOpenedAgain) {
  RowFitter fitter(4, 2);
  Places places;
  CHECK(fitter.restore(Numbers{3, 1}));
  CHECK(fitter.place(Numbers{1, 3, 4}, places));
  CHECK((places.rows == Numbers{1, 0, 2}));
  CHECK((places.begins == Numbers{3, 1, 0}));
  CHECK(!fitter.restore(Numbers{5}));
}

TEST(SizesThatFitNoRowAreRefused) {
  RowFitter fitter(4, 2);
  Places places;
  CHECK(!fitter.place(Numbers{1, 5}, places));
  CHECK(!fitter.place(Numbers{0}, places));
  CHECK(!fitter.place_sorted(Numbers{-1}, places));
  CHECK(places.rows.empty());
}

TEST(NothingIsCopiedFromOrToOutside) {
  const std::vector<uint8_t> values = {1, 2, 3, 4};
  std::vector<uint8_t> out(4);
  const auto copy = [&](const Numbers& from, const Numbers& to, const Numbers& sizes) {
    return copy_sequences(values, {from, to, sizes}, 2, out);
  };
  CHECK(copy({1, 0}, {0, 1}, {1, 1}));
  CHECK((out == std::vector<uint8_t>{3, 4, 1, 2}));
  CHECK(!copy({1}, {0}, {2}));
  CHECK(!copy({0}, {1}, {2}));
  CHECK(!copy({-1}, {0}, {1}));
  CHECK(!copy({0}, {0}, {-1}));
  CHECK(!copy({INT64_MAX}, {0}, {INT64_MAX}));
  CHECK(!copy({0, 0}, {0}, {1}));
}

TEST(ItemsAreNumberedWithinTheirSequences) {
  std::vector<int32_t> positions(5);
  std::vector<int32_t> segments(5);
  CHECK(number_items(Numbers{0, 3}, Numbers{3, 1}, Numbers{1, 2}, positions, segments));
  CHECK((positions == std::vector<int32_t>{0, 1, 2, 0, 0}));
  CHECK((segments == std::vector<int32_t>{1, 1, 1, 2, 0}));
  CHECK(number_items(Numbers{0}, Numbers{3}, Numbers{1}, {}, segments));
  CHECK(!number_items(Numbers{3}, Numbers{3}, Numbers{1}, positions, {}));
  CHECK(!number_items(Numbers{-1}, Numbers{1}, Numbers{1}, positions, {}));
}

}  // namespace
}  // namespace recmap
