#include "bind/interpreter.h"

#include <atomic>
#include <thread>

#include <pthread.h>
#include <unistd.h>

#include "bind/register.h"

namespace fastdata {
namespace {

// Whether the interpreter is ending, and which threads are just getting its lock back.
struct Ending {
    std::atomic<bool> begun{false};
    std::atomic<int> returning{0};  // threads that read `begun`, or have read it in time
    std::thread::id by;
};
Ending ending;

// Returns once no thread but this one can come back from the core.
void hold_threads() {
    ending.by = std::this_thread::get_id();
    ending.begun = true;
    WithoutLock without_lock;
    while (ending.returning > 0) std::this_thread::yield();
}

}  // namespace

WithoutLock::WithoutLock() : state_(PyEval_SaveThread()) {}

WithoutLock::~WithoutLock() {
    ++ending.returning;
    if (ending.begun && std::this_thread::get_id() != ending.by) {
        --ending.returning;
        for (;;) pause();
    }
    PyEval_RestoreThread(state_);
    --ending.returning;
}

void register_interpreter(nb::module_ &m) {
    // A forked child lacks the threads that were returning.
    pthread_atfork(nullptr, nullptr, [] { ending.returning = 0; });
    m.def("hold_threads", &hold_threads,
          "Keep other threads from returning from the core; call it when the interpreter ends.");
}

}  // namespace fastdata
