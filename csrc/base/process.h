// Objects that belong to the process that made them.
#pragma once

#include <memory>
#include <stdexcept>
#include <utility>

#include <sys/types.h>
#include <unistd.h>

namespace fastdata {

// Owns a T that has threads, or that threads share. A forked child has its parent's memory but none
// of its threads, and finds locks as they were at the fork, perhaps held for ever. There the T is
// neither used nor destroyed; the child leaks it, which costs little.
template <typename T>
class OfThisProcess {
  public:
    explicit OfThisProcess(std::unique_ptr<T> value) : value_(std::move(value)) {}
    ~OfThisProcess() { reset(); }
    OfThisProcess(const OfThisProcess &) = delete;
    OfThisProcess &operator=(const OfThisProcess &) = delete;

    bool is_here() const { return getpid() == process_; }

    // Throws std::runtime_error in a forked child.
    T &operator*() const {
        if (!is_here()) throw std::runtime_error("threads do not survive a fork");
        return *value_;
    }
    T *operator->() const { return &**this; }

    // Destroys it; in a forked child, leaks it.
    void reset() {
        if (is_here()) {
            value_.reset();
        } else {
            (void)value_.release();
        }
    }

  private:
    pid_t process_ = getpid();
    std::unique_ptr<T> value_;
};

}  // namespace fastdata
