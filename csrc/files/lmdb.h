// Reads values of an LMDB file by 8-byte keys, without mapping the file.
//
// Pages of the B-tree are read with pread, and every offset in them is checked, so a truncated or
// damaged file gives an error; LMDB's own map would kill the process with SIGBUS or SIGSEGV. Forks
// and other readers of the file do not matter. The layout is that of LMDB 0.9 (data version 1) on a
// little-endian 64-bit machine, as declared in libraries/liblmdb/mdb.c.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "files/byte_source.h"

namespace fastdata {

// What the meta page says about the tree.
struct LmdbTree {
    uint32_t page_size = 0;  // bytes
    uint64_t pages = 0;
    uint64_t root = 0;  // number of its page
};

class LmdbFile : public std::enable_shared_from_this<LmdbFile> {
  public:
    // Opens a file and reads its meta pages. Throws ReadError.
    explicit LmdbFile(const std::string &path);

    // Reads bytes [offset, offset + size) of the value of a key. Throws ReadError.
    Bytes read(uint64_t key, uint32_t offset, uint32_t size, ReadBuffer &buffer) const;

  private:
    File file_;
    LmdbTree tree_;
};

// Parts of values, one for each row of a batch.
class LmdbValues : public ByteSource {
  public:
    LmdbValues(std::shared_ptr<const LmdbFile> file, std::vector<uint64_t> keys,
               std::vector<uint32_t> offsets, std::vector<uint32_t> sizes)
        : file_(std::move(file)),
          keys_(std::move(keys)),
          offsets_(std::move(offsets)),
          sizes_(std::move(sizes)) {}

    size_t rows() const override { return keys_.size(); }
    Bytes read(size_t row, ReadBuffer &buffer) const override {
        return file_->read(keys_[row], offsets_[row], sizes_[row], buffer);
    }

  private:
    std::shared_ptr<const LmdbFile> file_;
    std::vector<uint64_t> keys_;
    std::vector<uint32_t> offsets_;
    std::vector<uint32_t> sizes_;
};

}  // namespace fastdata
