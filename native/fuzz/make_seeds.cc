// Writes a few inputs for each target into a directory, for a run to start from.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "wire_builder.h"

namespace recmap {
namespace {

using wire::Buffer;
using wire::entry;
using wire::example;
using wire::feature;
using wire::feature_list;
using wire::field;
using wire::floats;
using wire::ints;
using wire::join;
using wire::lists;
using wire::strings;

void write(const std::filesystem::path& folder, const std::vector<Buffer>& seeds) {
  std::filesystem::create_directories(folder);
  for (size_t i = 0; i < seeds.size(); ++i) {
    std::ofstream out(folder / ("seed" + std::to_string(i)), std::ios::binary);
    out.write(reinterpret_cast<const char*>(seeds[i].data()),
              static_cast<std::streamsize>(seeds[i].size()));
    if (!out) throw std::runtime_error("cannot write to " + folder.string());
  }
}

std::vector<Buffer> scan_seeds() {
  const Buffer choices = {0, 2, 9, 0, 1};
  const Buffer file = wire::framed({{1, 2, 3}, {}, {4}});
  const Buffer records = {3, 1, 2, 3, 0, 1, 4};
  std::vector<Buffer> seeds = {join(choices, file)};
  for (const uint8_t flags : Buffer{0x01, 0x03, 0x07, 0x39, 0x3f}) {
    seeds.push_back(join(Buffer{flags}, Buffer(choices.begin() + 1, choices.end()), records));
  }
  return seeds;
}

// Columns of the given types and shapes, then three patches near the record's end.
Buffer with_choices(std::initializer_list<uint8_t> columns, const Buffer& record) {
  const auto end = static_cast<uint8_t>(record.size());
  const auto before = [&](int n) { return static_cast<uint8_t>(end - n); };
  return join(Buffer(columns), Buffer{before(1), 0, 1, before(2), 0, 3, before(6), 0, 1}, record);
}

std::vector<Buffer> example_seeds() {
  const Buffer plain = example(entry("a", ints({1, 300})), entry("b", floats({1.5f, 2.0f})),
                               entry("c", strings({"xy", ""})));
  const Buffer raw = example(entry("a", strings({"12345678"})), entry("b", strings({"1234"})),
                             entry("c", strings({"xyz"})));
  const Buffer odd = join(
      example(field(1, join(field(2, ints({1})), field(1, Buffer{'a'}), field(2, ints({2}))))),
      example(entry("b", join(ints({1}), floats({1}))),
              entry("c", feature(Kind::kInt64, join(Buffer{0x08, 0x05}, field(1, Buffer{6}))))),
      Buffer{0x3b, 0x08, 0x01, 0x3c});
  const std::string schema = "RECMAPSC\x5a\x1b\x3c\x4d{\"schema\":{\"a\":\"int32[2]\"}}";
  const Buffer described = join(field(14, schema), plain);
  return {with_choices({6, 6, 11, 6, 0, 6}, described), with_choices({6, 6, 11, 6, 0, 6}, plain),
          with_choices({6, 4, 12, 4, 0, 4}, plain), with_choices({6, 3, 11, 3, 1, 3}, raw),
          with_choices({6, 30, 11, 27, 6, 4}, odd)};
}

std::vector<Buffer> sequence_seeds() {
  const Buffer steps = join(example(entry("a", ints({1}))),
                            lists(entry("a", feature_list(ints({1, 2}), ints({3}))),
                                  entry("b", feature_list(floats({1.5f}), floats({2.0f}))),
                                  entry("c", feature_list(strings({"x", ""}), Buffer{}))));
  const Buffer parts = lists(field(1, join(field(1, Buffer{'a'}), field(2, feature_list(ints({1}))),
                                           field(2, feature_list(ints({2}))))));
  return {with_choices({6, 5, 11, 5, 0, 5}, steps), with_choices({6, 5, 11, 4, 0, 5}, steps),
          with_choices({6, 5, 11, 6, 13, 5}, steps), with_choices({6, 4, 11, 30, 0, 30}, parts)};
}

// A type and a shape, then four steps.
std::vector<Buffer> step_seeds() {
  const Buffer choices = {3, 0, 1, 2, 1};
  const auto with_type = [&](uint8_t type, const Buffer& record) {
    return join(Buffer{type}, Buffer(choices.begin(), choices.end()), record);
  };
  return {with_type(6, example(entry("a", ints({1, 300, -1, 4})))),
          with_type(11, example(entry("a", floats({1, 2, 3, 4})))),
          with_type(0, example(entry("a", strings({"x", "", "yz", "1234"}))))};
}

// Where to cut, then a text.
std::vector<Buffer> utf8_seeds() {
  const std::string text = "eight bytes and more: \xc3\xa9 \xe6\xbc\xa2 \xf0\x9d\x84\x9e";
  return {join(Buffer{5}, Buffer(text.begin(), text.end()))};
}

// The size asked for, then literals and repeats of each kind.
std::vector<Buffer> lzf_seeds() {
  return {{5, 0, 1, 'a', 'b', 0x20, 0}, {20, 0, 2, 'a', 'b', 'c', 0xe0, 8, 2}, {1, 0, 0x40, 9}};
}

// A footer of one column, the headers of two pages, levels, and a Snappy stream.
std::vector<Buffer> parquet_seeds() {
  const Buffer choices = {0, 20, 0};
  const Buffer footer = {0x36, 6,  0x19, 0x1c, 0x19, 0x1c, 0x3c, 0x16, 12,   0x36, 2,
                         0x16, 18, 0x16, 80,   0x16, 60,   0x26, 20,   0x26, 8,    0x5c,
                         0x16, 50, 0,    0,    0,    0x26, 6,    0,    0};
  const Buffer first = {0x15, 0, 0x15, 100, 0x15, 40, 0x2c, 0x15, 14, 0x15, 16, 0, 0};
  const Buffer second = {0x15, 6, 0x15, 100, 0x15, 40, 0x5c, 0x15, 14, 0x25, 4, 0x15, 16, 0, 0};
  const Buffer levels = {20, 0, 3, 0x5a, 8, 1};
  const Buffer stream = {13, 8, 'a', 'b', 'c', 5, 3, 0xf0, 0, 'z', 14, 1, 0};
  return {join(choices, footer), join(choices, first), join(choices, second), join(choices, levels),
          join(choices, stream)};
}

}  // namespace
}  // namespace recmap

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: make_seeds <directory>\n";
    return 1;
  }
  const std::filesystem::path root(argv[1]);
  recmap::write(root / "scan", recmap::scan_seeds());
  recmap::write(root / "example", recmap::example_seeds());
  recmap::write(root / "sequence", recmap::sequence_seeds());
  recmap::write(root / "step", recmap::step_seeds());
  recmap::write(root / "utf8", recmap::utf8_seeds());
  recmap::write(root / "lzf", recmap::lzf_seeds());
  recmap::write(root / "parquet", recmap::parquet_seeds());
  return 0;
}
