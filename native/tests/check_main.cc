#include <cstdlib>
#include <exception>
#include <iostream>

#include "check.h"

int main() {
  int failed = 0;
  for (const check::Test& test : check::tests()) {
    const int before = check::failures();
    try {
      test.run();
    } catch (const std::exception& error) {
      check::fail(test.name, 0) << "threw: " << error.what() << '\n';
    }
    if (check::failures() == before) continue;
    ++failed;
    std::cerr << "FAILED " << test.name << '\n';
  }
  const auto passed = static_cast<int>(check::tests().size()) - failed;
  std::cout << passed << " passed, " << failed << " failed\n";
  return failed == 0 && passed > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
