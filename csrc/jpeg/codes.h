// The Huffman tables of a sequential scan, and which of them each block of an MCU is coded with.
#pragma once

#include "jpeg/codec.h"
#include "jpeg/huffman.h"
#include "jpeg/streams.h"

namespace fastdata {

class ScanCodes {
  public:
    ScanCodes() = default;
    ScanCodes(const ScanCodes &) = delete;  // blocks point to the tables
    ScanCodes &operator=(const ScanCodes &) = delete;

    // Takes what `info` has read up to its first scan. False where a table is missing or makes no
    // code, or an MCU has too many blocks.
    bool read(const jpeg_decompress_struct *info);

    const McuCodes &mcu() const { return mcu_; }

  private:
    HuffmanLookup dc_[NUM_HUFF_TBLS];
    HuffmanLookup ac_[NUM_HUFF_TBLS];
    McuCodes mcu_;
};

}  // namespace fastdata
