// pocket_fixture make CHECKPOINT_DIR     writes the fixture and the hashes beside the goldens (tools/make_pocket.sh)
// pocket_fixture rebuild FOLDER          writes the exact checkpoint into FOLDER
#include <cstdio>
#include <string_view>

#include "support/pocket_fixture.h"

int main(int argc, char** argv) {
    using namespace vesta;
    const test::PocketFiles files = test::PocketFiles::in_source_tree();
    if (argc != 3 || (std::string_view(argv[1]) != "make" && std::string_view(argv[1]) != "rebuild")) {
        std::fprintf(stderr, "usage: pocket_fixture make CHECKPOINT_DIR | rebuild FOLDER\n");
        return 2;
    }
    const Status status = std::string_view(argv[1]) == "make" ? test::make_pocket_fixture(argv[2], files)
                                                              : test::rebuild_pocket_checkpoint(files, argv[2]);
    if (!status.ok()) std::fprintf(stderr, "pocket_fixture: %s\n", status.error().message.c_str());
    return status.ok() ? 0 : 1;
}
