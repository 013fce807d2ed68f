// Short sequences packed into rows.
#include "pack_rows.h"

#include <cstdint>
#include <vector>

#include "check.h"

namespace recmap {
namespace {

using Numbers = std::vector<int64_t>;

Numbers finished(const Places& places) {
  Numbers rows;
  for (const FinishedRow& row : places.finished) rows.push_back(row.number);
  return rows;
}

Numbers used(const Places& places) {
  Numbers items;
  for (const FinishedRow& row : places.finished) items.push_back(row.used);
  return items;
}

Numbers after(const Places& places) {
  Numbers placed;
  for (const FinishedRow& row : places.finished) placed.push_back(row.after);
  return placed;
}

TEST(SequencesGoIntoTheFullestRowWithRoom) {
  RowFitter fitter(4, 2);
  Places places;
  CHECK(fitter.place(Numbers{3, 2, 1, 3, 2}, places));
  CHECK((places.rows == Numbers{0, 1, 0, 2, 1}));
  CHECK((places.begins == Numbers{0, 0, 3, 0, 2}));
  CHECK((places.numbers == Numbers{1, 1, 2, 1, 2}));
  CHECK((finished(places) == Numbers{0, 1}));
  CHECK((used(places) == Numbers{4, 4}));
  CHECK((after(places) == Numbers{3, 5}));
  CHECK((fitter.finish() == Numbers{3}));
  CHECK(fitter.finish().empty());
}

TEST(TheFullestRowIsFinishedIfNoneHasRoom) {
  RowFitter fitter(4, 2);
  Places places;
  CHECK(fitter.place(Numbers{2, 3, 3}, places));
  CHECK((places.rows == Numbers{0, 1, 2}));
  CHECK((finished(places) == Numbers{1}));
  CHECK((used(places) == Numbers{3}));
  CHECK((after(places) == Numbers{2}));
}

TEST(RowsThatAreStillOpenAreNumberedFirst) {
  RowFitter fitter(4, 3);
  Places first, then;
  CHECK(fitter.place(Numbers{4, 1, 3, 2}, first));
  CHECK((first.rows == Numbers{0, 1, 1, 2}));
  CHECK(fitter.place(Numbers{3, 1, 1}, then));
  CHECK((then.rows == Numbers{1, 1, 0}));
  CHECK((then.begins == Numbers{0, 3, 2}));
  CHECK((then.numbers == Numbers{1, 2, 2}));
}

TEST(LongSequencesArePlacedFirstIfSorted) {
  RowFitter fitter(4, 1);
  Places places;
  CHECK(fitter.place_sorted(Numbers{1, 3, 2, 2}, Numbers{4}, places));
  CHECK((places.rows == Numbers{0, 0, 1, 1}));
  CHECK((places.begins == Numbers{3, 0, 0, 2}));
  CHECK((places.numbers == Numbers{2, 1, 1, 2}));
  CHECK((finished(places) == Numbers{0, 1}));
  CHECK((after(places) == Numbers{4, 4}));
}

TEST(WindowsArePlacedOneAfterAnother) {
  // Longer sequences are compared, shorter ones counted.
  for (const int64_t by : {1, 100}) {
    RowFitter fitter(4 * by, 1);
    Places places;
    CHECK(fitter.place_sorted(Numbers{by, 2 * by, 3 * by, by}, Numbers{2, 2, 4}, places));
    CHECK((places.rows == Numbers{0, 0, 1, 0}));
    CHECK((places.begins == Numbers{2 * by, 0, 0, 3 * by}));
    CHECK((finished(places) == Numbers{0}));
    CHECK((after(places) == Numbers{4}));
    CHECK((fitter.finish() == Numbers{3 * by}));
  }
}

TEST(WindowsThatDoNotFitAreRefused) {
  RowFitter fitter(4, 1);
  for (const Numbers& ends : {Numbers{}, Numbers{1}, Numbers{3}, Numbers{2, 1}, Numbers{-1, 2}}) {
    Places places;
    CHECK(!fitter.place_sorted(Numbers{1, 1}, ends, places));
    CHECK(places.rows.empty());
  }
}

TEST(RowsAreOpenedAgain) {
  RowFitter fitter(4, 2);
  Places places;
  CHECK(fitter.restore(Numbers{3, 1}, Numbers{1, 2}));
  CHECK(fitter.place(Numbers{1, 3, 4}, places));
  CHECK((places.rows == Numbers{1, 0, 2}));
  CHECK((places.begins == Numbers{3, 1, 0}));
  CHECK((places.numbers == Numbers{3, 2, 1}));
  CHECK(!fitter.restore(Numbers{5}, Numbers{1}));
  CHECK(!fitter.restore(Numbers{3}, Numbers{}));
}

TEST(SizesThatFitNoRowAreRefused) {
  RowFitter fitter(4, 2);
  Places places;
  CHECK(!fitter.place(Numbers{1, 5}, places));
  CHECK(!fitter.place(Numbers{0}, places));
  CHECK(!fitter.place_sorted(Numbers{-1}, Numbers{1}, places));
  CHECK(places.rows.empty());
}

TEST(NothingIsCopiedFromOrToOutside) {
  const std::vector<uint8_t> values = {1, 2, 3, 4};
  std::vector<uint8_t> out(4);
  const auto copy = [&](const Numbers& from, const Numbers& to, const Numbers& sizes) {
    return copy_sequences(values, {from, to, sizes}, 2, out, 1);
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
  CHECK(number_items(Numbers{0, 3}, Numbers{3, 1}, Numbers{1, 2}, positions, segments, 1));
  CHECK((positions == std::vector<int32_t>{0, 1, 2, 0, 0}));
  CHECK((segments == std::vector<int32_t>{1, 1, 1, 2, 0}));
  CHECK(number_items(Numbers{0}, Numbers{3}, Numbers{1}, {}, segments, 1));
  CHECK(!number_items(Numbers{3}, Numbers{3}, Numbers{1}, positions, {}, 1));
  CHECK(!number_items(Numbers{-1}, Numbers{1}, Numbers{1}, positions, {}, 1));
}

TEST(ThreadsWriteWhatOneWouldWrite) {
  Numbers from, to, sizes, numbers;
  size_t items = 0;
  for (int64_t i = 0; i < 20'000; ++i) {
    sizes.push_back(i * i % 11);
    numbers.push_back(i);
    to.push_back(static_cast<int64_t>(items));
    items += static_cast<size_t>(sizes.back());
  }
  std::vector<uint8_t> values(2 * items), copied(2 * items);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint8_t>(i * 7 % 251);
  CHECK(copy_sequences(values, {to, to, sizes}, 2, copied, 3));
  CHECK(copied == values);
  std::vector<int32_t> positions(items), segments(items);
  CHECK(number_items(to, sizes, numbers, positions, segments, 3));
  bool right = true;
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (size_t at = 0; at < static_cast<size_t>(sizes[i]); ++at) {
      const size_t place = static_cast<size_t>(to[i]) + at;
      right &= positions[place] == static_cast<int32_t>(at);
      right &= segments[place] == static_cast<int32_t>(i);
    }
  }
  CHECK(right);
  to[19'999] = static_cast<int64_t>(items);
  sizes[19'999] = 1;
  CHECK(!copy_sequences(values, {to, to, sizes}, 2, copied, 3));
  CHECK(!number_items(to, sizes, numbers, positions, segments, 3));
}

}  // namespace
}  // namespace recmap
