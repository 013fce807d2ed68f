#include "text_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "utf8.h"

#if !defined(__cpp_lib_to_chars)
#include <locale.h>
#if defined(__APPLE__)
#include <xlocale.h>
#endif
#endif

namespace recmap {
namespace {

constexpr double kExact = 9007199254740992.0;  // 2^53

bool is_digit(char c) { return c >= '0' && c <= '9'; }

#if !defined(__cpp_lib_to_chars)
// Libraries without std::from_chars for floats.
template <typename T>
std::from_chars_result parse_float(const char* begin, const char* end, T& value) {
  static const locale_t c_locale = newlocale(LC_ALL_MASK, "C", nullptr);
  const std::string copy(begin, end);
  char* stop = nullptr;
  if constexpr (std::is_same_v<T, float>) {
    value = strtof_l(copy.c_str(), &stop, c_locale);
  } else {
    value = strtod_l(copy.c_str(), &stop, c_locale);
  }
  return {begin + (stop - copy.c_str()), std::errc()};
}
#else
template <typename T>
std::from_chars_result parse_float(const char* begin, const char* end, T& value) {
  return std::from_chars(begin, end, value);
}
#endif

enum class Form : uint8_t { kNone, kWhole, kDecimal, kExponent };

// Of -?digits[.digits][e[+-]digits], without zeros in front; also .5 and 5.
Form form_of(const char* at, const char* end) {
  if (at != end && *at == '-') ++at;
  const char* const digits = at;
  while (at != end && is_digit(*at)) ++at;
  const auto whole = at - digits;
  if (whole > 1 && *digits == '0') return Form::kNone;
  Form form = Form::kWhole;
  auto fraction = whole;
  if (at != end && *at == '.') {
    form = Form::kDecimal;
    const char* const after = ++at;
    while (at != end && is_digit(*at)) ++at;
    fraction += at - after;
  }
  if (fraction == 0) return Form::kNone;
  if (at != end && (*at == 'e' || *at == 'E')) {
    if (form == Form::kWhole) form = Form::kExponent;
    ++at;
    if (at != end && (*at == '-' || *at == '+')) ++at;
    const char* const power = at;
    while (at != end && is_digit(*at)) ++at;
    if (at == power) return Form::kNone;
  }
  return at == end ? form : Form::kNone;
}

// Whether a double is the integer that these digits say.
bool is_exact(double value, const char* begin, const char* end) {
  if (std::abs(value) < kExact) return true;
  char digits[400];
  const int size = std::snprintf(digits, sizeof digits, "%.0f", value);
  return std::string_view(digits, static_cast<size_t>(size)) ==
         std::string_view(begin, static_cast<size_t>(end - begin));
}

}  // namespace

void ValueLevel::add_null() {
  const uint8_t zeros[256] = {};
  while (nulls.size() < count) {
    nulls.append(zeros, std::min<size_t>(sizeof zeros, count - nulls.size()));
  }
  nulls.push<uint8_t>(1);
}

TextValues::TextValues(const TextColumn& column)
    : column_(&column), levels_(size_t{column.depth} + 1) {
  for (size_t i = 0; i < levels_.size(); ++i) {
    if (i < column.depth || column.dtype == Dtype::kBytes) levels_[i].ends.push<int64_t>(0);
  }
}

void TextValues::add_null(size_t level) {
  levels_[level].add_null();
  if (level < column_->depth) return end_list(level);
  ValueLevel& values = levels_[level];
  ++values.count;
  switch (column_->dtype) {
    case Dtype::kBytes:
      return values.ends.push(static_cast<int64_t>(data_.size()));
    case Dtype::kBool:
    case Dtype::kInt8:
    case Dtype::kUint8:
      return data_.push<uint8_t>(0);
    case Dtype::kInt16:
    case Dtype::kUint16:
      return data_.push<uint16_t>(0);
    case Dtype::kInt32:
    case Dtype::kUint32:
    case Dtype::kFloat32:
      return data_.push<uint32_t>(0);
    default:
      return data_.push<uint64_t>(0);
  }
}

void TextValues::end_list(size_t level) {
  ++levels_[level].count;
  levels_[level].ends.push(static_cast<int64_t>(levels_[level + 1].count));
}

void TextValues::add_bool(bool value) {
  ++levels_.back().count;
  data_.push<uint8_t>(value ? 1 : 0);
}

TextFaultCode TextValues::add_string(const uint8_t* begin, size_t size) {
  data_.append(begin, size);
  return end_string();
}

TextFaultCode TextValues::end_string() {
  ValueLevel& values = levels_.back();
  ++values.count;
  values.ends.push(static_cast<int64_t>(data_.size()));
  const size_t begin = string_begin_;
  string_begin_ = data_.size();
  if (column_->text && !is_utf8({data_.data() + begin, data_.size() - begin})) {
    return TextFaultCode::kNotUtf8;
  }
  return TextFaultCode::kNone;
}

template <typename T>
TextFaultCode TextValues::add_whole(const char* begin, const char* end) {
  const char* at = begin;
  if (column_->given && end - at > 1 && *at == '+' && is_digit(at[1])) ++at;
  T value{};
  const auto [stop, error] = std::from_chars(at, end, value);
  const char* const digits = at + (end - at > 1 && *at == '-' ? 1 : 0);
  // -0 would lose its sign, and 007 its zeros.
  const bool padded = *digits == '0' && (end - digits > 1 || digits != at);
  if (stop != end || error == std::errc::invalid_argument || (padded && !column_->given)) {
    const Form form = form_of(begin, end);
    if (form == Form::kNone) return TextFaultCode::kNotNumber;
    return form == Form::kWhole && *digits != '0' ? TextFaultCode::kOutOfRange
           : form == Form::kWhole                 ? TextFaultCode::kNotNumber
                                                  : TextFaultCode::kNotWhole;
  }
  if (error != std::errc()) return TextFaultCode::kOutOfRange;
  ++levels_.back().count;
  data_.push(value);
  return TextFaultCode::kNone;
}

template <typename T>
TextFaultCode TextValues::add_float(const char* begin, const char* end) {
  const char* at = begin;
  if (column_->given && end - at > 1 && *at == '+' && at[1] != '-') ++at;
  const Form form = form_of(at, end);
  if (form == Form::kNone && !column_->given) return TextFaultCode::kNotNumber;
  T value{};
  const auto [stop, error] = parse_float(at, end, value);
  if (stop != end || error == std::errc::invalid_argument) return TextFaultCode::kNotNumber;
  if (error == std::errc::result_out_of_range) {
    // Too small is 0, as everywhere; too large is no number.
    const std::string copy(at, end);
    value = static_cast<T>(std::strtod(copy.c_str(), nullptr));
  }
  if (std::isinf(value) && form != Form::kNone) return TextFaultCode::kOutOfRange;
  if (form == Form::kWhole && !column_->given) {
    if (!is_exact(static_cast<double>(value), at, end)) return TextFaultCode::kInexact;
    // -0 would be an integer elsewhere.
  }
  ++levels_.back().count;
  data_.push(value);
  return TextFaultCode::kNone;
}

TextFaultCode TextValues::add_number(const char* begin, const char* end) {
  if (begin == end) return TextFaultCode::kNotNumber;
  switch (column_->dtype) {
    case Dtype::kInt8:
      return add_whole<int8_t>(begin, end);
    case Dtype::kInt16:
      return add_whole<int16_t>(begin, end);
    case Dtype::kInt32:
      return add_whole<int32_t>(begin, end);
    case Dtype::kInt64:
      return add_whole<int64_t>(begin, end);
    case Dtype::kUint8:
      return add_whole<uint8_t>(begin, end);
    case Dtype::kUint16:
      return add_whole<uint16_t>(begin, end);
    case Dtype::kUint32:
      return add_whole<uint32_t>(begin, end);
    case Dtype::kUint64:
      return add_whole<uint64_t>(begin, end);
    case Dtype::kFloat32:
      return add_float<float>(begin, end);
    case Dtype::kFloat64:
      return add_float<double>(begin, end);
    default:
      return TextFaultCode::kNotText;
  }
}

TextFaultCode TextValues::add_special(const char* begin, const char* end) {
  double value = 0;
  parse_float(begin, end, value);
  ++levels_.back().count;
  if (column_->dtype == Dtype::kFloat32) {
    data_.push(static_cast<float>(value));
  } else {
    data_.push(value);
  }
  return TextFaultCode::kNone;
}

TextLooks looks_of(const char* begin, const char* end) {
  if (begin == end) return kLooksEmpty;
  switch (form_of(begin, end)) {
    case Form::kWhole: {
      int64_t value = 0;
      const auto result = std::from_chars(begin, end, value);
      const bool negative_zero = *begin == '-' && begin[1] == '0';
      return result.ec == std::errc() && !negative_zero ? kLooksWhole : kLooksOther;
    }
    case Form::kDecimal:
      return kLooksDecimal;
    case Form::kExponent:
      return kLooksExponent;
    default:
      return kLooksOther;
  }
}

}  // namespace recmap
