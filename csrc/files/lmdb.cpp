#include "files/lmdb.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace fastdata {
namespace {

constexpr uint32_t kMagic = 0xBEEFC0DE;
constexpr uint32_t kPageHeader = 16;
constexpr uint32_t kNodeHeader = 8;
constexpr uint32_t kKey = 8;  // bytes of our keys
constexpr uint16_t kBranch = 0x01, kLeaf = 0x02, kMeta = 0x08;
constexpr uint16_t kBigData = 0x01;
constexpr int kMaxDepth = 32;  // LMDB's own limit (CURSOR_STACK)

template <typename T>
T load(const uint8_t *at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

[[noreturn]] void damaged(const std::string &what) {
    throw ReadError("the LMDB file is damaged: " + what);
}

// One page of the tree, in memory. Nothing in it is believed before it is checked.
class Page {
  public:
    // A page that a lost or misdirected write left with other content has another number in it.
    // Most such pages would pass all other checks, and hide the samples that belong there.
    Page(const uint8_t *bytes, uint32_t size, uint64_t number) : bytes_(bytes), size_(size) {
        if (load<uint64_t>(bytes) != number) {
            damaged("page " + std::to_string(number) + " is not the page that belongs there");
        }
        lower_ = load<uint16_t>(bytes + 12);
        if (lower_ < kPageHeader || lower_ > size || (lower_ - kPageHeader) % 2 != 0) {
            damaged("a page's list of nodes is out of bounds");
        }
    }

    uint16_t flags() const { return load<uint16_t>(bytes_ + 10); }
    uint32_t count() const { return (lower_ - kPageHeader) / 2; }

    // The node's 8 bytes of header and everything after them up to the end of the page.
    Bytes node(uint32_t index) const {
        const uint32_t at = load<uint16_t>(bytes_ + kPageHeader + 2 * index);
        if (at < lower_ || at + kNodeHeader > size_) damaged("a node is out of bounds");
        const uint16_t key_size = load<uint16_t>(bytes_ + at + 6);
        if (at + kNodeHeader + key_size > size_) damaged("a key is out of bounds");
        return {bytes_ + at, size_ - at};
    }

    // Negative, zero or positive if the node's key sorts before, equals or sorts after `key`.
    int compare(uint32_t index, const uint8_t *key) const {
        const Bytes found = node(index);
        const uint16_t size = load<uint16_t>(found.data + 6);
        const int order = std::memcmp(found.data + kNodeHeader, key, std::min<size_t>(size, kKey));
        return order != 0 ? order : static_cast<int>(size) - static_cast<int>(kKey);
    }

    // The first node from `first` on whose key is not before `key`; count() if there is none.
    uint32_t lower_bound(uint32_t first, const uint8_t *key) const {
        uint32_t last = count();
        while (first < last) {
            const uint32_t middle = first + (last - first) / 2;
            if (compare(middle, key) < 0) {
                first = middle + 1;
            } else {
                last = middle;
            }
        }
        return first;
    }

    // The page of a branch's child that holds `key`, if any does.
    uint64_t child(const uint8_t *key) const {
        if (count() == 0) damaged("a branch is empty");
        // The first child holds all keys below the second's, and its own key is not set.
        uint32_t index = lower_bound(1, key);
        if (index == count() || compare(index, key) > 0) --index;
        const uint8_t *header = node(index).data;
        return load<uint32_t>(header) | uint64_t{load<uint16_t>(header + 4)} << 32;
    }

  private:
    const uint8_t *bytes_;
    uint32_t size_;
    uint32_t lower_;  // end of the list of nodes
};

// The leaf that holds `key`, if any does.
Page find_leaf(const File &file, const LmdbTree &tree, const uint8_t *key, ReadBuffer &buffer) {
    uint64_t number = tree.root;
    for (int depth = 0; depth < kMaxDepth; ++depth) {
        if (number >= tree.pages) damaged("a page lies past its end");
        uint8_t *memory = buffer.grow(tree.page_size);
        file.read(number * tree.page_size, memory, tree.page_size);
        const Page page(memory, tree.page_size, number);
        if (page.flags() & kBranch) {
            number = page.child(key);
        } else if (page.flags() & kLeaf) {
            return page;
        } else {
            damaged("a page is neither branch nor leaf");
        }
    }
    damaged("its tree is too deep");
}

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
    const Meta other = read_meta(file_, meta.page_size);
    if (other.page_size != meta.page_size) damaged("its page size is impossible");
    // Transactions write the two meta pages in turn; the newer one counts.
    if (other.transaction > meta.transaction) meta = other;
    tree_ = {meta.page_size, meta.last_page + 1, meta.root};
    if (tree_.pages > file_.size() / tree_.page_size) damaged("it is truncated");
}

Bytes LmdbFile::read(uint64_t key, uint32_t offset, uint32_t size, ReadBuffer &buffer) const {
    uint8_t wanted[kKey];  // big-endian, which sorts as numbers do
    for (uint32_t i = 0; i < kKey; ++i) wanted[i] = static_cast<uint8_t>(key >> (56 - 8 * i));
    const Page leaf = find_leaf(file_, tree_, wanted, buffer);
    const uint32_t index = leaf.lower_bound(0, wanted);
    if (index == leaf.count() || leaf.compare(index, wanted) != 0) damaged("a sample is missing");

    const Bytes node = leaf.node(index);
    const uint32_t value_size = load<uint32_t>(node.data);
    if (uint64_t{offset} + size > value_size) damaged("a value is too short");
    const uint8_t *value = node.data + kNodeHeader + kKey;
    const size_t room = node.size - kNodeHeader - kKey;
    if (!(load<uint16_t>(node.data + 4) & kBigData)) {
        if (room < value_size) damaged("a value is out of bounds");
        return {value + offset, size};
    }
    if (room < sizeof(uint64_t)) damaged("a node is out of bounds");
    const uint64_t first = load<uint64_t>(value);  // of the overflow pages; only it has a header
    const uint64_t start = first * tree_.page_size + kPageHeader;
    if (first >= tree_.pages || start + value_size > tree_.pages * tree_.page_size) {
        damaged("a value lies past its end");
    }
    return file_.read(start + offset, size, buffer);
}

}  // namespace fastdata
