// What it takes to read a sequential scan: the Huffman tables of its blocks, and its coded bytes,
// one restart run at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "jpeg/codec.h"
#include "jpeg/huffman.h"
#include "jpeg/streams.h"

namespace fastdata {

// Throws a DecodeError worded like libjpeg's, so that users see the same sentence whoever decodes.
[[noreturn]] void throw_corrupt(const char *what);

// The tables, and which of them each block of an MCU is coded with.
class ScanCodes {
  public:
    ScanCodes() = default;
    ScanCodes(const ScanCodes &) = delete;  // blocks point to the tables
    ScanCodes &operator=(const ScanCodes &) = delete;

    // Takes the tables that `info` has read up to its first scan. False if one is missing or makes
    // no code, or if an MCU has too many blocks.
    bool read(const jpeg_decompress_struct *info);

    const McuCodes &mcu() const { return mcu_; }

  private:
    HuffmanLookup dc_[NUM_HUFF_TBLS];
    HuffmanLookup ac_[NUM_HUFF_TBLS];
    McuCodes mcu_;
};

// The runs of a scan in order.
class CodedRuns {
  public:
    // The scan's `runs` runs begin at `at`.
    void start(const uint8_t *data, size_t size, size_t at, int64_t runs);

    // Copies the next run to `out`, or skips it if that is null, without stuffing and the marker
    // that ends it. Returns the end of the copy. Throws DecodeError if the marker is not the right
    // one; the last run may end with the file instead.
    uint8_t *take(uint8_t *out);

    int64_t next() const { return next_; }  // number of the run that take() would take
    int marker() const { return marker_; }  // that ended the last one taken, or kCut

  private:
    const uint8_t *data_ = nullptr;
    size_t size_ = 0;
    size_t at_ = 0;
    int64_t next_ = 0;
    int64_t runs_ = 0;
    int marker_ = 0;
};

}  // namespace fastdata
