// pocket_fixture make CHECKPOINT_DIR [ROOT]    writes the fixture and the hashes beside the goldens
// (tools/make_pocket.sh) pocket_fixture rebuild FOLDER [ROOT]         writes the exact checkpoint into FOLDER
//
// ROOT: another copy of the repository, of which only models/pocket.gguf and tests/data/pocket-v0 are needed.
#include <cstdio>
#include <string_view>

#include "support/pocket_fixture.h"

int main(int argc, char** argv) {
    using namespace vesta;
    const std::string_view what = argc >= 3 && argc <= 4 ? argv[1] : "";
    if (what != "make" && what != "rebuild") {
        std::fprintf(stderr, "usage: pocket_fixture make CHECKPOINT_DIR [ROOT] | rebuild FOLDER [ROOT]\n");
        return 2;
    }
    const test::PocketFiles files =
        argc == 4 ? test::PocketFiles::in_tree(argv[3]) : test::PocketFiles::in_source_tree();
    const Status status =
        what == "make" ? test::make_pocket_fixture(argv[2], files) : test::rebuild_pocket_checkpoint(files, argv[2]);
    if (!status.ok()) std::fprintf(stderr, "pocket_fixture: %s\n", status.error().message.c_str());
    return status.ok() ? 0 : 1;
}
