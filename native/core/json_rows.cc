#include "json_rows.h"

#include <cstring>
#include <string_view>

#include "utf8.h"

namespace recmap {
namespace {

// Values that no column reads may be this deep.
constexpr int kDeepest = 500;

bool is_digit(uint8_t c) { return c >= '0' && c <= '9'; }

int hex_value(uint8_t c) {
  if (is_digit(c)) return c - '0';
  const uint8_t lower = c | 0x20;
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

}  // namespace

JsonColumns::JsonColumns(std::span<const TextColumn> columns) : objects_(1) {
  for (size_t i = 0; i < columns.size(); ++i) {
    size_t object = 0;
    for (size_t level = 0; level < columns[i].path.size(); ++level) {
      const std::string& key = columns[i].path[level];
      const auto [place, added] =
          objects_[object].places.try_emplace(key, objects_[object].keys.size());
      if (added) {
        objects_[object].keys.push_back(key);
        objects_[object].members.emplace_back();
      }
      const size_t at = place->second;
      if (level + 1 == columns[i].path.size()) {
        objects_[object].members[at].column = static_cast<int64_t>(i);
      } else {
        if (objects_[object].members[at].object < 0) {
          objects_[object].members[at].object = static_cast<int64_t>(objects_.size());
          objects_.emplace_back();
        }
        object = static_cast<size_t>(objects_[object].members[at].object);
      }
    }
  }
}

class JsonParser {
 public:
  JsonParser(Bytes text, const JsonColumns& columns, bool strict, std::span<TextValues> values)
      : begin_(text.data()),
        at_(text.data()),
        end_(text.data() + text.size()),
        objects_(columns.objects_),
        strict_(strict),
        values_(values),
        seen_columns_(values.size(), 0),
        seen_members_(columns.objects_.size()) {
    for (size_t i = 0; i < objects_.size(); ++i) seen_members_[i].resize(objects_[i].keys.size());
  }

  TextFault parse(uint64_t& rows) {
    for (rows = 0;; ++rows) {
      while (at_ != end_ && (*at_ == '\n' || *at_ == '\r')) ++at_;
      if (at_ == end_) return {};
      row_ = value_ = at_;
      column_ = -1;
      row_number_ = rows + 1;
      found_ = 0;
      TextFaultCode code = row();
      if (code == TextFaultCode::kNone && found_ != values_.size()) code = fill_missing();
      if (code != TextFaultCode::kNone) {
        const uint8_t* const stop = at_ < value_ ? value_ : at_;
        return {code, rows, offset(row_), offset(value_), offset(stop), column_, 0};
      }
    }
  }

 private:
  using Code = TextFaultCode;

  uint64_t offset(const uint8_t* place) const { return static_cast<uint64_t>(place - begin_); }

  // A line break ends a row, and is no white space within one.
  void skip_space() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }

  Code broken() const { return at_ == end_ || *at_ == '\n' ? Code::kUnclosed : Code::kNotJson; }

  Code row() {
    skip_space();
    value_ = at_;
    if (at_ == end_ || *at_ != '{') return Code::kNotObject;
    if (const Code code = object(0); code != Code::kNone) return code;
    skip_space();
    if (at_ != end_ && *at_ != '\n') return value_ = at_, column_ = -1, Code::kNotJson;
    return Code::kNone;
  }

  Code fill_missing() {
    value_ = at_;
    for (size_t i = 0; i < values_.size(); ++i) {
      if (seen_columns_[i] == row_number_) continue;
      column_ = static_cast<int64_t>(i);
      if (!values_[i].column().wanted) continue;
      if (!values_[i].column().nullable) return Code::kNull;
      values_[i].add_null(0);
    }
    return Code::kNone;
  }

  // Calls item() for each item of an object or list, at whose beginning we are.
  template <typename Item>
  Code each_item(uint8_t close, Item&& item) {
    ++at_;
    skip_space();
    if (at_ != end_ && *at_ == close) return ++at_, Code::kNone;
    while (true) {
      skip_space();
      if (const Code code = item(); code != Code::kNone) return code;
      skip_space();
      if (at_ != end_ && *at_ == close) return ++at_, Code::kNone;
      if (at_ == end_ || *at_ != ',') return broken();
      ++at_;
    }
  }

  Code key() {
    if (at_ == end_ || *at_ != '"') return broken();
    value_ = at_;
    // Most keys have no escapes, and are taken as they are.
    const uint8_t* stop = at_ + 1;
    while (stop != end_ && *stop != '"' && *stop != '\\' && *stop >= 0x20) ++stop;
    if (stop != end_ && *stop == '"') {
      key_ = {reinterpret_cast<const char*>(at_ + 1), static_cast<size_t>(stop - at_ - 1)};
      at_ = stop + 1;
    } else {
      escaped_key_.cut(0);
      if (const Code code = string(&escaped_key_); code != Code::kNone) return code;
      key_ = {reinterpret_cast<const char*>(escaped_key_.data()), escaped_key_.size()};
    }
    key_end_ = at_;
    skip_space();
    if (at_ == end_ || *at_ != ':') return broken();
    ++at_;
    skip_space();
    return Code::kNone;
  }

  Code object(size_t number) {
    const auto& known = objects_[number];
    size_t expected = 0;
    return each_item('}', [&] {
      column_ = -1;
      if (const Code code = key(); code != Code::kNone) return code;
      size_t place = expected;
      if (place >= known.keys.size() || known.keys[place] != key_) {
        const auto found = known.places.find(std::string(key_));
        if (found == known.places.end()) return unknown();
        place = found->second;
      }
      expected = place + 1;
      if (seen_members_[number][place] == row_number_) return at_ = key_end_, Code::kDuplicate;
      seen_members_[number][place] = row_number_;
      return member(known.members[place]);
    });
  }

  Code unknown() {
    if (strict_) return at_ = key_end_, Code::kUnknownKey;
    value_ = at_;
    return skip(0);
  }

  Code member(const JsonColumns::Member& member) {
    value_ = at_;
    if (member.object >= 0 && at_ != end_ && *at_ == '{') {
      return object(static_cast<size_t>(member.object));
    }
    if (member.column < 0) {
      // Of an object that is null, all columns are missing.
      if (is_word("null")) return Code::kNone;
      return static_cast<void>(skip(0)), Code::kNotObject;
    }
    column_ = member.column;
    const auto column = static_cast<size_t>(member.column);
    seen_columns_[column] = row_number_;
    ++found_;
    TextValues& values = values_[column];
    return values.column().wanted ? value(values, 0) : skip(0);
  }

  bool is_word(std::string_view word) {
    if (static_cast<size_t>(end_ - at_) < word.size()) return false;
    if (std::memcmp(at_, word.data(), word.size()) != 0) return false;
    at_ += word.size();
    return true;
  }

  Code value(TextValues& values, size_t level) {
    const TextColumn& column = values.column();
    if (at_ == end_ || *at_ == '\n') return Code::kUnclosed;
    value_ = at_;
    if (*at_ == 'n' && is_word("null")) {
      if (!(level == 0 ? column.nullable : column.null_items)) return Code::kNull;
      return values.add_null(level), Code::kNone;
    }
    if (level < column.depth) {
      if (*at_ != '[') return wrong(Code::kNotList);
      const Code code = each_item(']', [&] { return value(values, level + 1); });
      if (code == Code::kNone) values.end_list(level);
      return code;
    }
    if (column.dtype == Dtype::kBytes) {
      if (*at_ != '"') return wrong(Code::kNotText);
      const Code code = string(&values.data());
      return code == Code::kNone ? values.end_string() : code;
    }
    if (column.dtype == Dtype::kBool) {
      if (is_word("true")) return values.add_bool(true), Code::kNone;
      if (is_word("false")) return values.add_bool(false), Code::kNone;
      return wrong(Code::kNotBool);
    }
    const bool real = column.dtype == Dtype::kFloat32 || column.dtype == Dtype::kFloat64;
    if (real && (*at_ == 'N' || *at_ == 'I' || (*at_ == '-' && at_ + 1 != end_ && at_[1] == 'I'))) {
      return special(values);
    }
    const uint8_t* const begin = at_;
    if (const Code code = number(); code != Code::kNone) {
      return code == Code::kNotJson ? wrong(Code::kNotNumber) : code;
    }
    return values.add_number(reinterpret_cast<const char*>(begin),
                             reinterpret_cast<const char*>(at_));
  }

  // A float that is none in JSON. The parser of numbers knows its name.
  Code special(TextValues& values) {
    std::string_view name = is_word("NaN")         ? "nan"
                            : is_word("Infinity")  ? "inf"
                            : is_word("-Infinity") ? "-inf"
                                                   : "";
    if (name.empty()) return wrong(Code::kNotNumber);
    return values.add_special(name.data(), name.data() + name.size());
  }

  // Passes a value of another kind, which may be no value at all.
  Code wrong(Code code) {
    const uint8_t* const begin = at_;
    if (skip(0) != Code::kNone) return value_ = begin, broken();
    return value_ = begin, code;
  }

  Code number() {
    const uint8_t* at = at_;
    if (at != end_ && *at == '-') ++at;
    const uint8_t* const digits = at;
    while (at != end_ && is_digit(*at)) ++at;
    if (at == digits || (*digits == '0' && at - digits > 1)) return Code::kNotJson;
    if (at != end_ && *at == '.') {
      const uint8_t* const fraction = ++at;
      while (at != end_ && is_digit(*at)) ++at;
      if (at == fraction) return Code::kNotJson;
    }
    if (at != end_ && (*at == 'e' || *at == 'E')) {
      ++at;
      if (at != end_ && (*at == '-' || *at == '+')) ++at;
      const uint8_t* const power = at;
      while (at != end_ && is_digit(*at)) ++at;
      if (at == power) return Code::kNotJson;
    }
    at_ = at;
    return Code::kNone;
  }

  // Reads a string, and appends it unless `out` is null.
  Code string(GrowingBytes* out) {
    ++at_;
    while (true) {
      const uint8_t* const begin = at_;
      while (at_ != end_ && *at_ != '"' && *at_ != '\\' && *at_ >= 0x20) ++at_;
      if (out != nullptr) out->append(begin, static_cast<size_t>(at_ - begin));
      if (at_ == end_ || *at_ == '\n') return Code::kUnclosed;
      if (*at_ < 0x20) return Code::kNotJson;
      if (*at_++ == '"') return Code::kNone;
      if (const Code code = escape(out); code != Code::kNone) return code;
    }
  }

  Code escape(GrowingBytes* out) {
    if (at_ == end_ || *at_ == '\n') return Code::kUnclosed;
    constexpr std::string_view kNames = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
    const uint8_t name = *at_++;
    if (name != 'u') {
      const size_t place = kNames.find(static_cast<char>(name));
      if (place == std::string_view::npos) return Code::kEscape;
      if (out != nullptr) out->push(kMeant[place]);
      return Code::kNone;
    }
    int64_t character = unit();
    if (character >= 0xD800 && character < 0xDC00) {
      if (!is_word("\\u")) return Code::kEscape;
      const int64_t low = unit();
      if (low < 0xDC00 || low > 0xDFFF) return Code::kEscape;
      character = 0x10000 + ((character - 0xD800) << 10) + (low - 0xDC00);
    }
    if (character < 0 || (character >= 0xD800 && character < 0xE000)) return Code::kEscape;
    if (out != nullptr) append_utf8(*out, static_cast<uint32_t>(character));
    return Code::kNone;
  }

  int64_t unit() {
    if (end_ - at_ < 4) return -1;
    int64_t value = 0;
    for (int i = 0; i < 4; ++i) {
      const int digit = hex_value(*at_++);
      if (digit < 0) return -1;
      value = value * 16 + digit;
    }
    return value;
  }

  static void append_utf8(GrowingBytes& out, uint32_t c) {
    const auto push = [&](uint32_t byte) { out.push(static_cast<uint8_t>(byte)); };
    if (c < 0x80) return push(c);
    if (c < 0x800) {
      push(0xC0 | (c >> 6));
    } else {
      if (c < 0x10000) {
        push(0xE0 | (c >> 12));
      } else {
        push(0xF0 | (c >> 18));
        push(0x80 | ((c >> 12) & 0x3F));
      }
      push(0x80 | ((c >> 6) & 0x3F));
    }
    push(0x80 | (c & 0x3F));
  }

  // Passes a value that no column reads.
  Code skip(int depth) {
    if (at_ == end_ || *at_ == '\n') return Code::kUnclosed;
    if (depth > kDeepest) return Code::kTooDeep;
    switch (*at_) {
      case '{':
        return each_item('}', [&] {
          const std::string_view outer = key_;
          const Code code = key();
          key_ = outer;
          return code == Code::kNone ? skip(depth + 1) : code;
        });
      case '[':
        return each_item(']', [&] { return skip(depth + 1); });
      case '"':
        return string(nullptr);
      default:
        break;
    }
    for (const std::string_view word : {"null", "true", "false", "NaN", "Infinity", "-Infinity"}) {
      if (is_word(word)) return Code::kNone;
    }
    return number();
  }

  const uint8_t *begin_, *at_, *end_;
  const uint8_t *row_ = nullptr, *value_ = nullptr, *key_end_ = nullptr;
  const std::vector<JsonColumns::Object>& objects_;
  bool strict_;
  std::span<TextValues> values_;
  std::vector<uint64_t> seen_columns_;
  std::vector<std::vector<uint64_t>> seen_members_;
  std::string_view key_;
  GrowingBytes escaped_key_;
  uint64_t row_number_ = 0;
  size_t found_ = 0;
  int64_t column_ = -1;
};

TextFault parse_json(Bytes text, const JsonColumns& columns, bool strict,
                     std::span<TextValues> values, uint64_t& rows) {
  return JsonParser(text, columns, strict, values).parse(rows);
}

}  // namespace recmap
