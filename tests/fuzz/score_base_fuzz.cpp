// Any bytes: the base file reader refuses them with a message that names the file, or every record it announces can be
// asked for and either keeps its promises or is refused. The seeds in corpus/score_base are written by the test
// ScoreBase.SeedsAreTheCommittedOnes.
#include <cmath>
#include <span>

#include "score/base_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace vesta;
    const auto base = score::BaseFile::parse(std::as_bytes(std::span(data, size)), "fuzz.base");
    if (!base.ok()) {
        VESTA_CHECK(base.error().message.rfind("fuzz.base: ", 0) == 0);
        return 0;
    }
    const score::BaseHeader& h = base.value().header();
    VESTA_CHECK(h.n_record <= size && h.k <= h.n_vocab);
    for (uint64_t i = 0; i < h.n_record; ++i) {
        const auto record = base.value().record(i);
        if (!record.ok()) continue;
        VESTA_CHECK(record.value().row.ids.size() == h.k);
        for (const int32_t id : record.value().row.ids) VESTA_CHECK(id >= 0 && static_cast<uint32_t>(id) < h.n_vocab);
        VESTA_CHECK(std::isfinite(record.value().logprob));
    }
    return 0;
}
