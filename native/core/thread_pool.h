// Threads that help their callers. They start when they are first needed, sleep while there is
// nothing to do, and live as long as the process. A forked child starts its own.
#pragma once

#include <cstddef>

namespace recmap {

// Makes the process ready to fork at any time. Call it once, when the program begins.
void prepare_helpers();

// Calls run(argument) on this thread, and at the same time on up to `helpers` others. Returns when
// all calls have returned. There are fewer calls than asked for if the others are busy or the
// system does not let them start, so run() shares out the work as it is called. It must not
// throw. Safe to call from any thread, also from inside run().
void run_with_helpers(size_t helpers, void (*run)(void*), void* argument);

}  // namespace recmap
