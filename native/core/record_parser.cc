#include "record_parser.h"

#include <algorithm>

#include "utf8.h"

namespace recmap {
namespace {

// Learning a skeleton costs about as much as visiting ten records, so it is given up for files
// that do not repeat themselves.
constexpr int kMaxSkeletons = 64;
constexpr size_t kMaxSkeleton = 64 << 10;

bool wants(const Column& column, bool in_lists) {
  return column.place != (in_lists ? Column::Place::kFeatures : Column::Place::kLists);
}

std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

RecordParser::RecordParser(std::span<const Column> columns, bool find_unknown)
    : columns_(columns),
      find_unknown_(find_unknown),
      wants_lists_(find_unknown || std::any_of(columns.begin(), columns.end(),
                                               [](const Column& c) { return wants(c, true); })),
      needs_lists_(std::any_of(columns.begin(), columns.end(),
                               [](const Column& c) { return !wants(c, false); })),
      cells_(columns.size()),
      from_lists_(columns.size()),
      skeletons_left_(kMaxSkeletons) {
  for (size_t i = 0; i < columns.size(); ++i) {
    for (const bool in_lists : {false, true}) {
      if (!wants(columns[i], in_lists)) continue;
      // A column that names its map takes precedence over one that reads either.
      const auto [at, added] = by_key_[in_lists].try_emplace(columns[i].key, static_cast<int>(i));
      if (!added && columns[i].place != Column::Place::kAny) at->second = static_cast<int>(i);
    }
  }
}

bool RecordParser::parse(Bytes record) {
  if (record.size() == learned_length_ && matches(record)) {
    for (size_t i = 0; i < cells_.size(); ++i) {
      cells_[i].bytes = record.subspan(cell_ranges_[i].begin, cell_ranges_[i].size);
    }
    return true;
  }
  // A column of either map looks into field 2, which is unknown in a plain Example and may hold
  // anything.
  const bool lists = parse_anew(record, wants_lists_);
  if (!lists && (needs_lists_ || !wants_lists_ || !parse_anew(record, false))) return false;
  if (!unknown_.empty() && !check_unknown()) return false;
  description_ = description_of(record);
  shape_fault_ = has_values_ ? FaultCode::kNone : recmap::shape_fault(record, lists);
  if (record.size() == last_length_ && plain_ && skeletons_left_ > 0) learn(record);
  last_length_ = record.size();
  return true;
}

bool RecordParser::parse_anew(Bytes record, bool lists) {
  learned_length_ = SIZE_MAX;
  std::fill(cells_.begin(), cells_.end(), Cell{});
  std::fill(from_lists_.begin(), from_lists_.end(), uint8_t{0});
  payloads_.clear();
  unknown_.clear();
  unknown_cells_.clear();
  has_values_ = false;
  entry_ = 0;
  plain_ = true;
  return visit_entries(record, lists, scratch_, [this](bool in_lists, Bytes key, const Cell& cell) {
    if (in_lists || cell.form == Cell::Form::kFeature) {
      plain_ = false;
    } else if (cell.form == Cell::Form::kPacked) {
      payloads_.push_back(cell.bytes);
    }
    has_values_ |= cell.kind != Kind::kNone;
    place(in_lists, key, cell);
  });
}

int RecordParser::find(bool in_lists, Bytes key) {
  if (entry_ == order_.size()) order_.push_back(-1);
  int& guess = order_[entry_++];
  if (guess >= 0) {
    const Column& column = columns_[static_cast<size_t>(guess)];
    if (column.key == as_text(key) && wants(column, in_lists)) return guess;
  }
  const auto found = by_key_[in_lists].find(as_text(key));
  guess = found == by_key_[in_lists].end() ? -1 : found->second;
  return guess;
}

void RecordParser::place(bool in_lists, Bytes key, const Cell& cell) {
  const int found = find(in_lists, key);
  if (found < 0) {
    if (find_unknown_) add_unknown(in_lists, key, cell);
    return;
  }
  const auto i = static_cast<size_t>(found);
  // If both maps hold the key, a feature that has a value takes precedence.
  const Cell& other = cells_[i];
  const bool both = other.form != Cell::Form::kMissing && (from_lists_[i] != 0) != in_lists;
  if (both) {
    const bool stays = in_lists || cell.form == Cell::Form::kMissing;
    if (find_unknown_) add_unknown(in_lists || !stays, key, stays ? cell : other);
    if (stays) return;
  }
  cells_[i] = cell;
  from_lists_[i] = in_lists;
}

// Out of line, so that place() stays small: nearly all features have a column.
[[gnu::noinline, gnu::cold]] void RecordParser::add_unknown(bool in_lists, Bytes key,
                                                            const Cell& cell) {
  if (cell.form == Cell::Form::kMissing) return;
  unknown_.push_back({in_lists, key, cell.kind});
  unknown_cells_.push_back(cell);
}

// Drops what only looks like a feature: field 2 of a plain Example may hold anything, so feature
// lists count only if they are sound and hold something. False if a key is not UTF-8: protobuf
// refuses such strings, so the record is not an Example.
bool RecordParser::check_unknown() {
  size_t kept = 0;
  bool lists_are_sound = true;
  for (size_t i = 0; i < unknown_.size(); ++i) {
    const Unknown& here = unknown_[i];
    bool counts = !here.in_lists;
    if (here.in_lists) {
      lists_are_sound &= is_utf8(here.key) && visit_steps(unknown_cells_[i], [&](const Cell& step) {
                           counts |= step.form != Cell::Form::kMissing;
                           return true;
                         });
    } else if (!is_utf8(here.key)) {
      return false;
    }
    if (counts) unknown_[kept++] = here;
  }
  unknown_.resize(kept);
  if (!lists_are_sound) std::erase_if(unknown_, [](const Unknown& u) { return u.in_lists; });
  return true;
}

void RecordParser::learn(Bytes record) {
  --skeletons_left_;
  size_t payload = 0;
  for (const Bytes& p : payloads_) payload += p.size();
  if (record.size() - std::min(payload, record.size()) > kMaxSkeleton) {
    skeletons_left_ = 0;
    return;
  }
  fixed_.clear();
  skeleton_.clear();
  size_t at = 0;
  const auto keep = [&](size_t end) {
    if (end == at) return;
    fixed_.push_back({at, end - at});
    skeleton_.insert(skeleton_.end(), record.begin() + static_cast<std::ptrdiff_t>(at),
                     record.begin() + static_cast<std::ptrdiff_t>(end));
  };
  // Payloads come in the order in which they lie, inside the record, except those of an entry
  // that had its value in several parts.
  for (const Bytes& p : payloads_) {
    if (p.data() < record.data() || p.data() + p.size() > record.data() + record.size()) return;
    const auto begin = static_cast<size_t>(p.data() - record.data());
    if (begin < at) return;
    keep(begin);
    at = begin + p.size();
  }
  keep(record.size());
  cell_ranges_.clear();
  for (const Cell& cell : cells_) {
    const bool here = cell.form == Cell::Form::kPacked;
    cell_ranges_.push_back(
        here ? Range{static_cast<size_t>(cell.bytes.data() - record.data()), cell.bytes.size()}
             : Range{0, 0});
  }
  learned_length_ = record.size();
}

bool RecordParser::matches(Bytes record) const {
  const uint8_t* expected = skeleton_.data();
  for (const Range& range : fixed_) {
    if (std::memcmp(record.data() + range.begin, expected, range.size) != 0) return false;
    expected += range.size;
  }
  return true;
}

}  // namespace recmap
