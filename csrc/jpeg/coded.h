// The coded bytes of a sequential scan, a restart run at a time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastdata {

// Throws a DecodeError in libjpeg's words.
[[noreturn]] void throw_corrupt(const char *what);

class CodedRuns {
  public:
    // From `at` on there are so many runs.
    void start(const uint8_t *data, size_t size, size_t at, int64_t runs);

    // Goes to the end of the next run, past the marker there; its bytes, without stuffing, go to
    // `out` unless that is null. Returns where they end. The last run may end with the bytes.
    // Throws DecodeError where a marker is wrong.
    uint8_t *pass(uint8_t *out);

    int64_t next() const { return next_; }  // number of the run that pass() comes to
    int marker() const { return marker_; }  // that pass() went past, or kCut

  private:
    const uint8_t *data_ = nullptr;
    size_t size_ = 0;
    size_t at_ = 0;
    int64_t next_ = 0;
    int64_t runs_ = 0;
    int marker_ = 0;
};

}  // namespace fastdata
