#include "files/lmdb_values.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace fastdata {
namespace {

constexpr uint32_t kMagic = 0xBEEFC0DE;
constexpr uint32_t kPageHeader = 16;
constexpr uint32_t kNodeHeader = 8;
constexpr uint16_t kBranch = 0x01, kLeaf = 0x02, kMeta = 0x08;
constexpr uint16_t kBigData = 0x01;
constexpr int kMaxDepth = 32;  // LMDB's own limit (CURSOR_STACK)

template <typename T>
T load(const uint8_t *at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

[[noreturn]] void damaged(const char *what) {
    throw ReadError(std::string("the LMDB file is damaged: ") + what);
}

// One page of the tree, in memory; nothing in it is believed before it is checked.
class Page {
  public:
    Page(const uint8_t *bytes, uint32_t size) : bytes_(bytes), size_(size) {
        lower_ = load<uint16_t>(bytes + 12);
        if (lower_ < kPageHeader || lower_ > size || (lower_ - kPageHeader) % 2 != 0) {
            damaged("a page's list of nodes is out of bounds");
        }
    }

    uint16_t flags() const { return load<uint16_t>(bytes_ + 10); }
    uint32_t count() const { return (lower_ - kPageHeader) / 2; }

    // The node's 8 bytes of header with everything behind them up to the end of the page.
    Bytes node(uint32_t index) const {
        uint32_t at = load<uint16_t>(bytes_ + kPageHeader + 2 * index);
        if (at < lower_ || at + kNodeHeader > size_) damaged("a node is out of bounds");
        uint16_t key_size = load<uint16_t>(bytes_ + at + 6);
        if (at + kNodeHeader + key_size > size_) damaged("a key is out of bounds");
        return {bytes_ + at, size_ - at};
    }

    // Negative, zero or positive as the node's key sorts before, at or behind the 8 bytes.
    int compare(uint32_t index, const uint8_t *key) const {
        Bytes found = node(index);
        uint16_t size = load<uint16_t>(found.data + 6);
        int order = std::memcmp(found.data + kNodeHeader, key, std::min<size_t>(size, 8));
        return order != 0 ? order : int(size) - 8;
    }

    // The first node from `first` on whose key is not before the key; count() if there is none.
    uint32_t lower_bound(uint32_t first, const uint8_t *key) const {
        uint32_t last = count();
        while (first < last) {
            uint32_t middle = first + (last - first) / 2;
            if (compare(middle, key) < 0) {
                first = middle + 1;
            } else {
                last = middle;
            }
        }
        return first;
    }

  private:
    const uint8_t *bytes_;
    uint32_t size_;
    uint32_t lower_;
};

struct Meta {
    uint32_t page_size;
    uint64_t root, last_page, transaction;
};

Meta read_meta(const File &file, uint64_t offset) {
    uint8_t bytes[152];
    file.read(offset, bytes, sizeof bytes);
    if (!(load<uint16_t>(bytes + 10) & kMeta) || load<uint32_t>(bytes + 16) != kMagic ||
        load<uint32_t>(bytes + 20) != 1) {
        damaged("a meta page is not one");
    }
    return {load<uint32_t>(bytes + 40), load<uint64_t>(bytes + 128),
            load<uint64_t>(bytes + 136), load<uint64_t>(bytes + 144)};
}

}  // namespace

LmdbFile::LmdbFile(const std::string &path) : file_(path) {
    Meta meta = read_meta(file_, 0);
    if (meta.page_size < 512 || meta.page_size > 65536) damaged("its page size is impossible");
    Meta other = read_meta(file_, meta.page_size);
    if (other.page_size != meta.page_size) damaged("its page size is impossible");
    if (other.transaction > meta.transaction) meta = other;
    page_size_ = meta.page_size;
    pages_ = meta.last_page + 1;
    root_ = meta.root;
    if (pages_ > file_.size() / page_size_) damaged("it is truncated");
}

Bytes LmdbFile::read(uint64_t key, uint32_t offset, uint32_t size, ReadBuffer &buffer) const {
    uint8_t wanted[8];
    for (int i = 0; i < 8; i++) wanted[i] = uint8_t(key >> (56 - 8 * i));
    uint64_t number = root_;
    for (int depth = 0; depth < kMaxDepth; depth++) {
        if (number >= pages_) damaged("a page lies behind its end");
        uint8_t *memory = buffer.grow(page_size_);
        file_.read(number * page_size_, memory, page_size_);
        Page page(memory, page_size_);
        if (page.flags() & kBranch) {
            if (page.count() == 0) damaged("a branch is empty");
            // the first child holds all keys below the second's, and its own key is not set
            uint32_t index = page.lower_bound(1, wanted);
            if (index == page.count() || page.compare(index, wanted) > 0) index--;
            const uint8_t *node = page.node(index).data;
            number = load<uint32_t>(node) | uint64_t(load<uint16_t>(node + 4)) << 32;
            continue;
        }
        if (!(page.flags() & kLeaf)) damaged("a page is neither branch nor leaf");
        uint32_t index = page.lower_bound(0, wanted);
        if (index == page.count() || page.compare(index, wanted) != 0) {
            damaged("a sample is missing");
        }
        Bytes node = page.node(index);
        uint32_t value_size = load<uint32_t>(node.data);
        if (uint64_t(offset) + size > value_size) damaged("a value is too short");
        const uint8_t *value = node.data + kNodeHeader + 8;
        size_t room = node.size - kNodeHeader - 8;
        if (load<uint16_t>(node.data + 4) & kBigData) {
            if (room < 8) damaged("a node is out of bounds");
            uint64_t first = load<uint64_t>(value);
            uint64_t start = first * page_size_ + kPageHeader;
            if (first >= pages_ || start + value_size > pages_ * page_size_) {
                damaged("a value lies behind its end");
            }
            return file_.read(start + offset, size, buffer);
        }
        if (room < value_size) damaged("a value is out of bounds");
        return {value + offset, size};
    }
    damaged("its tree is too deep");
}

}  // namespace fastdata
