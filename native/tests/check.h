// A minimal test framework. TEST(Name) { ... } registers a test; CHECK and CHECK_EQ report a
// failure and continue. check_main.cc runs them all.
#pragma once

#include <iostream>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace check {

struct Test {
  const char* name;
  void (*run)();
};

// Functions, not variables, so that tests of any file may register before main.
inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

inline std::vector<std::string_view>& scopes() {
  static std::vector<std::string_view> open;
  return open;
}

inline int& failures() {
  static int count = 0;
  return count;
}

struct Register {
  Register(const char* name, void (*run)()) { tests().push_back({name, run}); }
};

// Names the case of a loop in any failure while it lives; `name` must outlive it.
class Scope {
 public:
  explicit Scope(std::string_view name) { scopes().push_back(name); }
  ~Scope() { scopes().pop_back(); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

inline std::ostream& fail(const char* file, int line) {
  ++failures();
  std::cerr << file << ':' << line << ": ";
  for (const std::string_view scope : scopes()) std::cerr << '[' << scope << "] ";
  return std::cerr;
}

template <typename T>
void print(std::ostream& out, const T& value) {
  if constexpr (std::is_enum_v<T>) {
    out << +static_cast<std::underlying_type_t<T>>(value);
  } else if constexpr (std::is_integral_v<T>) {
    out << +value << " (0x" << std::hex << +value << std::dec << ')';
  } else {
    out << value;
  }
}

template <typename T>
concept Number = std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char>;

// By value, so that CHECK_EQ(list.size(), 3) needs no cast.
template <typename A, typename B>
bool equal(const A& a, const B& b) {
  if constexpr (Number<A> && Number<B>) {
    return std::cmp_equal(a, b);
  } else {
    return a == b;
  }
}

template <typename A, typename B>
void check_eq(const A& a, const B& b, const char* text, const char* file, int line) {
  if (equal(a, b)) return;
  std::ostream& out = fail(file, line) << text << ": ";
  print(out, a);
  out << " != ";
  print(out, b);
  out << '\n';
}

}  // namespace check

#define TEST(name)                                                  \
  static void test_##name();                                        \
  static const check::Register register_##name(#name, test_##name); \
  static void test_##name()

#define CHECK(cond)                                                           \
  do {                                                                        \
    if (!(cond)) check::fail(__FILE__, __LINE__) << "not so: " #cond << '\n'; \
  } while (false)

#define CHECK_EQ(a, b) check::check_eq((a), (b), #a " == " #b, __FILE__, __LINE__)
