#include "text_rows.h"

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "check.h"

namespace recmap {
namespace {

constexpr RowSyntax kCsv{'"', ','}, kLines{};

Bytes bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Where rows begin, found one byte at a time.
std::vector<uint64_t> slow_starts(std::string_view text, RowSyntax syntax) {
  std::vector<uint64_t> starts;
  bool quoted = false, begun = true;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<uint8_t>(text[i]);
    if (begun && c != '\n' && c != '\r') starts.push_back(i);
    if (syntax.quote != 0 && c == syntax.quote) quoted = !quoted;
    begun = !quoted && c == '\n';
  }
  return starts;
}

std::string random_csv(std::mt19937& random, size_t rows) {
  const std::vector<std::string> fields = {"",           "1",        "abc",
                                           "\"\"",       "\"a,b\"",  "\"a\nb\"",
                                           "\"a\"\"b\"", "\"\r\n\"", std::string(70, 'x')};
  std::string text;
  for (size_t row = 0; row < rows; ++row) {
    for (int field = 0; field < 3; ++field) {
      if (field != 0) text += ',';
      text += fields[random() % fields.size()];
    }
    text += random() % 2 != 0 ? "\n" : "\r\n";
    if (random() % 5 == 0) text += '\n';
  }
  return text;
}

TEST(RowsAreFoundAsByteByByte) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const std::string text = random_csv(random, random() % 40);
    const auto wanted = slow_starts(text, kCsv);
    for (const size_t threads : {1, 3}) {
      const RowScan scan = scan_rows(bytes_of(text), -1, {}, kCsv, 1, threads);
      CHECK_EQ(scan.fault, RowFault::kNone);
      CHECK_EQ(scan.rows, wanted.size());
      CHECK(scan.anchor_offsets == wanted);
      CHECK(!scan.state.quoted);
    }
    // From any place between two bytes on.
    const size_t cut = text.empty() ? 0 : random() % text.size();
    const int next = cut < text.size() ? static_cast<uint8_t>(text[cut]) : -1;
    const RowScan first = scan_rows(bytes_of(text).first(cut), next, {}, kCsv, 1, 1);
    const RowScan rest =
        scan_rows(bytes_of(text).subspan(cut), -1, cut != 0 ? first.state : RowState{}, kCsv, 1, 1);
    CHECK_EQ(first.fault, RowFault::kNone);
    CHECK_EQ(rest.fault, RowFault::kNone);
    CHECK_EQ(first.rows + rest.rows, wanted.size());
    for (size_t row = 0; row < wanted.size(); ++row) {
      const uint64_t anchor = row / 4 * 4;
      uint64_t begin = 0, end = 0;
      const uint64_t step = row - anchor;
      locate_rows(bytes_of(text), kCsv, {&wanted[anchor], 1}, {&step, 1}, {&begin, 1}, {&end, 1});
      CHECK_EQ(begin, wanted[row]);
      CHECK_EQ(end, row + 1 < wanted.size() ? wanted[row + 1] : text.size());
    }
    for (uint64_t most : {uint64_t{1}, uint64_t{20}, uint64_t{300}, uint64_t{1} << 40}) {
      const RowWalk walk = walk_rows(bytes_of(text), kCsv, 5, most);
      uint64_t rows = 0, end = 0;
      while (rows < std::min<size_t>(5, wanted.size())) {
        const uint64_t after = rows + 1 < wanted.size() ? wanted[rows + 1] : text.size();
        if (rows != 0 && after > most) break;
        ++rows, end = after;
      }
      CHECK_EQ(walk.rows, rows);
      if (rows != 0) CHECK_EQ(walk.end, end);
    }
  }
}

TEST(AnchorsAreTheFirstRowOfEachStepInAnyBlock) {
  std::string text;
  while (text.size() < (size_t{1} << 20)) text += "1,\"a\nb\",3\n";
  const auto starts = slow_starts(text, kCsv);
  for (const size_t threads : {1, 4}) {
    const RowScan scan = scan_rows(bytes_of(text), -1, {}, kCsv, 4096, threads);
    CHECK_EQ(scan.rows, starts.size());
    CHECK_EQ(scan.anchor_rows.size(), text.size() / 4096);
    for (size_t i = 0; i < scan.anchor_rows.size(); ++i) {
      CHECK_EQ(scan.anchor_offsets[i], starts[scan.anchor_rows[i]]);
      CHECK(scan.anchor_offsets[i] >= i * 4096);
      CHECK(scan.anchor_rows[i] == 0 || starts[scan.anchor_rows[i] - 1] < i * 4096);
    }
  }
}

TEST(QuotesAndReturnsWhereNoneCanBeAreFaults) {
  struct Bad {
    std::string_view text;
    RowFault fault;
    uint64_t offset;
  };
  for (const Bad& bad : std::vector<Bad>{{"a\n5\" pipe,1\n", RowFault::kQuote, 3},
                                         {"a\n\"x\"y,1\n", RowFault::kQuote, 4},
                                         {"a\n1,\"x\\\"y\"\n", RowFault::kQuote, 7},
                                         {"a\rb\r", RowFault::kReturn, 1},
                                         {"a\nb\r", RowFault::kReturn, 3}}) {
    const check::Scope scope(bad.text);
    const RowScan scan = scan_rows(bytes_of(bad.text), -1, {}, kCsv, 1, 1);
    CHECK_EQ(scan.fault, bad.fault);
    CHECK_EQ(scan.fault_offset, bad.offset);
  }
  CHECK(scan_rows(bytes_of("a\n\"b\n"), -1, {}, kCsv, 1, 1).state.quoted);
  CHECK_EQ(scan_rows(bytes_of("\"\n\"\n"), -1, {}, kLines, 1, 1).rows, 2u);
}

}  // namespace
}  // namespace recmap
