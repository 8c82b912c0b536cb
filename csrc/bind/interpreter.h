// Working without the interpreter's lock (the GIL), and getting it back.
#pragma once

#include <nanobind/nanobind.h>

namespace fastdata {

// Releases the GIL for as long as it lives. A daemon thread that asks for the GIL once the
// interpreter has ended would have its stack unwound by CPython before 3.14, and nanobind's frames
// on that stack end the process. Such a thread waits here instead, until the process is gone.
class WithoutLock {
  public:
    WithoutLock();
    ~WithoutLock();
    WithoutLock(const WithoutLock &) = delete;
    WithoutLock &operator=(const WithoutLock &) = delete;

  private:
    PyThreadState *state_;
};

}  // namespace fastdata
