#include <memory>

#include <nanobind/stl/shared_ptr.h>

#include "bind/convert.h"
#include "bind/register.h"
#include "files/byte_source.h"
#include "files/lmdb.h"

namespace fastdata {
namespace {

auto make_file_ranges(std::shared_ptr<FileSet> files, const Column<uint32_t> &numbers,
                      const Column<uint64_t> &offsets, const Column<uint32_t> &sizes) {
    require(numbers.size() == offsets.size() && numbers.size() == sizes.size(),
            "numbers, offsets and sizes must have one length");
    return std::make_shared<FileRanges>(std::move(files), copy(numbers), copy(offsets),
                                        copy(sizes));
}

auto make_lmdb_values(std::shared_ptr<LmdbFile> file, const Column<uint64_t> &keys,
                      const Column<uint32_t> &offsets, const Column<uint32_t> &sizes) {
    require(keys.size() == offsets.size() && keys.size() == sizes.size(),
            "keys, offsets and sizes must have one length");
    return std::make_shared<LmdbValues>(std::move(file), copy(keys), copy(offsets), copy(sizes));
}

auto make_mixed_rows(std::vector<std::shared_ptr<ByteSource>> parts,
                     const Column<uint32_t> &numbers, const Column<uint32_t> &rows) {
    require(numbers.size() == rows.size(), "numbers and rows must have one length");
    return std::make_shared<MixedRows>(std::move(parts), copy(numbers), copy(rows));
}

}  // namespace

void register_sources(nb::module_ &m) {
    nb::class_<ByteSource>(m, "ByteSource", "Where the encoded bytes of a batch come from.");
    nb::class_<FileSet>(m, "FileSet", "The shards of a data set.")
        .def(nb::new_([](const Names &paths, size_t most_open) {
                 return std::make_shared<FileSet>(copy(paths), most_open);
             }),
             "paths"_a, "most_open"_a);
    nb::class_<FileRanges, ByteSource>(m, "FileRanges", "Ranges of shards.")
        .def(nb::new_(&make_file_ranges), "files"_a, "numbers"_a, "offsets"_a, "sizes"_a);
    nb::class_<LmdbFile>(m, "LmdbFile", "An LMDB file that is read without mapping it.")
        .def(nb::new_([](const nb::bytes &path) { return std::make_shared<LmdbFile>(copy(path)); }),
             "path"_a);
    nb::class_<LmdbValues, ByteSource>(m, "LmdbValues", "Parts of the values of an LMDB file.")
        .def(nb::new_(&make_lmdb_values), "file"_a, "keys"_a, "offsets"_a, "sizes"_a);
    nb::class_<MixedRows, ByteSource>(m, "MixedRows", "Rows of several sources.")
        .def(nb::new_(&make_mixed_rows), "parts"_a, "numbers"_a, "rows"_a);
    nb::class_<WholeFiles, ByteSource>(m, "WholeFiles", "Files by their paths.")
        .def(nb::new_([](const Names &paths) { return std::make_shared<WholeFiles>(copy(paths)); }),
             "paths"_a);
}

}  // namespace fastdata
