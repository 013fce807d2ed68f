#include <cstdlib>
#include <exception>
#include <iostream>
#include <string_view>

#include "check.h"

// Runs the tests whose name contains the argument, or all of them.
int main(int count, char** arguments) {
  const std::string_view wanted = count > 1 ? arguments[1] : "";
  int passed = 0;
  int failed = 0;
  for (const check::Test& test : check::tests()) {
    if (std::string_view(test.name).find(wanted) == std::string_view::npos) continue;
    const int before = check::failures();
    try {
      test.run();
    } catch (const std::exception& error) {
      check::fail(test.name, 0) << "threw: " << error.what() << '\n';
    }
    if (check::failures() == before) {
      ++passed;
      continue;
    }
    ++failed;
    std::cerr << "FAILED " << test.name << '\n';
  }
  std::cout << passed << " passed, " << failed << " failed\n";
  return failed == 0 && passed > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
