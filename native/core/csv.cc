#include "csv.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace recmap {
namespace {

struct CsvField {
  const uint8_t* begin;  // without the quotes
  const uint8_t* end;
  bool quoted = false, doubled = false;
};

class CsvCursor {
 public:
  CsvCursor(Bytes text, RowSyntax syntax)
      : begin_(text.data()), at_(text.data()), end_(text.data() + text.size()), syntax_(syntax) {}

  // Goes to the next row that is not blank. Returns false if there is none.
  bool next_row() {
    while (at_ != end_ && (*at_ == '\n' || (*at_ == '\r' && at_ + 1 != end_ && at_[1] == '\n'))) {
      at_ += *at_ == '\n' ? 1 : 2;
    }
    row_ = at_;
    return at_ != end_;
  }

  // Reads a field, and stays at what ends it.
  TextFaultCode next_field(CsvField& field) {
    field = {at_, at_};
    if (at_ != end_ && *at_ == syntax_.quote) return quoted_field(field);
    while (at_ != end_ && *at_ != syntax_.delimiter && *at_ != '\n' && *at_ != syntax_.quote) ++at_;
    field.end = at_;
    if (at_ != end_ && *at_ == '\n' && at_ != field.begin && at_[-1] == '\r') --field.end;
    if (at_ != end_ && *at_ == syntax_.quote) return TextFaultCode::kQuote;
    return TextFaultCode::kNone;
  }

  // Whether another field of the row follows; if not, goes past the end of the row.
  bool more() {
    if (at_ == end_) return false;
    return *at_++ == syntax_.delimiter;
  }

  uint64_t offset(const uint8_t* place) const { return static_cast<uint64_t>(place - begin_); }
  uint64_t row_offset() const { return offset(row_); }
  const uint8_t* at() const { return at_; }

 private:
  TextFaultCode quoted_field(CsvField& field) {
    field.begin = ++at_;
    field.quoted = true;
    while (true) {
      const auto* quote = static_cast<const uint8_t*>(
          std::memchr(at_, syntax_.quote, static_cast<size_t>(end_ - at_)));
      if (quote == nullptr) {
        at_ = field.end = end_;
        return TextFaultCode::kUnclosed;
      }
      at_ = quote + 1;
      if (at_ == end_ || *at_ != syntax_.quote) {
        field.end = quote;
        break;
      }
      field.doubled = true;
      ++at_;
    }
    if (at_ + 1 < end_ && *at_ == '\r' && at_[1] == '\n') ++at_;
    const bool ended = at_ == end_ || *at_ == syntax_.delimiter || *at_ == '\n';
    return ended ? TextFaultCode::kNone : TextFaultCode::kQuote;
  }

  const uint8_t *begin_, *at_, *end_, *row_ = nullptr;
  RowSyntax syntax_;
};

// Appends a field with each doubled quote as one.
template <typename Append>
void unquoted(const CsvField& field, uint8_t quote, Append&& append) {
  const uint8_t* at = field.begin;
  while (field.doubled && at != field.end) {
    const auto* next =
        static_cast<const uint8_t*>(std::memchr(at, quote, static_cast<size_t>(field.end - at)));
    if (next == nullptr) break;
    append(at, next + 1);
    at = next + 2;
  }
  append(at, field.end);
}

bool is_true(std::string_view text) {
  return text == "true" || text == "True" || text == "TRUE" || text == "1";
}

bool is_false(std::string_view text) {
  return text == "false" || text == "False" || text == "FALSE" || text == "0";
}

TextFaultCode add_field(const CsvField& field, uint8_t quote, TextValues& values) {
  const TextColumn& column = values.column();
  const bool empty = field.begin == field.end;
  if (column.dtype == Dtype::kBytes) {
    if (empty && !field.quoted) {
      if (column.nullable) return values.add_null(0), TextFaultCode::kNone;
      if (!column.given) return TextFaultCode::kNull;
    }
    unquoted(field, quote, [&](const uint8_t* begin, const uint8_t* end) {
      values.data().append(begin, static_cast<size_t>(end - begin));
    });
    return values.end_string();
  }
  if (empty) {
    if (!column.nullable) return TextFaultCode::kNull;
    return values.add_null(0), TextFaultCode::kNone;
  }
  const auto* begin = reinterpret_cast<const char*>(field.begin);
  const auto* end = reinterpret_cast<const char*>(field.end);
  while (column.given && begin != end && (*begin == ' ' || *begin == '\t')) ++begin;
  while (column.given && begin != end && (end[-1] == ' ' || end[-1] == '\t')) --end;
  if (column.dtype != Dtype::kBool) return values.add_number(begin, end);
  const std::string_view text(begin, static_cast<size_t>(end - begin));
  if (!is_true(text) && !is_false(text)) return TextFaultCode::kNotBool;
  return values.add_bool(is_true(text)), TextFaultCode::kNone;
}

// Calls visit(column, field), which returns a fault, for the fields of all rows.
template <typename Visit>
TextFault each_field(Bytes text, RowSyntax syntax, size_t columns, uint64_t& rows, Visit&& visit) {
  CsvCursor cursor(text, syntax);
  CsvField field{};
  for (rows = 0; cursor.next_row(); ++rows) {
    const auto fail = [&](TextFaultCode code, size_t column) {
      return TextFault{code,
                       rows,
                       cursor.row_offset(),
                       cursor.offset(field.begin),
                       cursor.offset(field.end),
                       column < columns ? static_cast<int64_t>(column) : -1,
                       static_cast<int64_t>(column)};
    };
    size_t column = 0;
    for (bool more = true; more; ++column) {
      TextFaultCode code = cursor.next_field(field);
      if (code == TextFaultCode::kNone && column == columns) code = TextFaultCode::kManyFields;
      if (code == TextFaultCode::kNone) code = visit(column, field);
      if (code != TextFaultCode::kNone) return fail(code, column);
      more = cursor.more();
    }
    if (column < columns) return fail(TextFaultCode::kFewFields, column);
  }
  return {};
}

}  // namespace

TextFault parse_csv(Bytes text, RowSyntax syntax, std::span<TextValues> values, uint64_t& rows) {
  return each_field(text, syntax, values.size(), rows, [&](size_t column, const CsvField& field) {
    TextValues& mine = values[column];
    return mine.column().wanted ? add_field(field, syntax.quote, mine) : TextFaultCode::kNone;
  });
}

std::vector<std::string> first_csv_row(Bytes text, RowSyntax syntax) {
  std::vector<std::string> fields;
  CsvCursor cursor(text, syntax);
  if (!cursor.next_row()) return fields;
  do {
    CsvField field{};
    static_cast<void>(cursor.next_field(field));
    std::string& value = fields.emplace_back();
    unquoted(field, syntax.quote,
             [&](const uint8_t* begin, const uint8_t* end) { value.append(begin, end); });
  } while (cursor.more());
  return fields;
}

TextFault survey_csv(Bytes text, RowSyntax syntax, std::span<uint8_t> looks) {
  uint64_t rows = 0;
  return each_field(text, syntax, looks.size(), rows, [&](size_t column, const CsvField& field) {
    const auto* begin = reinterpret_cast<const char*>(field.begin);
    const auto* end = reinterpret_cast<const char*>(field.end);
    looks[column] |= begin == end && field.quoted ? kLooksOther : looks_of(begin, end);
    if (field.quoted || begin != end) looks[column] |= field.quoted ? kLooksQuoted : kLooksBare;
    return TextFaultCode::kNone;
  });
}

}  // namespace recmap
