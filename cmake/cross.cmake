# The build when it is for another machine than it runs on (preset aarch64): the rooms that the kernels stand on and
# their tests, nothing else. So the only foreign library is the compiler's own: {fmt} and xxHash are used as headers, and
# GoogleTest is compiled from its source package.
find_package(Threads REQUIRED)
foreach(header fmt/format.h xxhash.h gtest/gtest.h)
    string(MAKE_C_IDENTIFIER VESTA_${header} id)
    find_file(${id} ${header} PATHS /usr/include)
    if(NOT ${id})
        message(FATAL_ERROR "${header} is missing; on Debian: apt install libfmt-dev libxxhash-dev libgtest-dev")
    endif()
endforeach()
find_path(VESTA_GTEST_SOURCE src/gtest-all.cc PATHS /usr/src/googletest/googletest)
if(NOT VESTA_GTEST_SOURCE)
    message(FATAL_ERROR "the source of GoogleTest is missing (src/gtest-all.cc); on Debian: apt install googletest. "
        "Elsewhere: -DVESTA_GTEST_SOURCE=FOLDER")
endif()
add_library(fmt::fmt INTERFACE IMPORTED)
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)
add_library(vesta_gtest STATIC ${VESTA_GTEST_SOURCE}/src/gtest-all.cc ${VESTA_GTEST_SOURCE}/src/gtest_main.cc)
target_include_directories(vesta_gtest PRIVATE ${VESTA_GTEST_SOURCE})
add_library(GTest::gtest ALIAS vesta_gtest)
add_library(GTest::gtest_main ALIAS vesta_gtest)

include(cmake/vesta.cmake)
include(cmake/rooms.cmake)
target_link_libraries(vesta_options INTERFACE Threads::Threads)
target_compile_definitions(vesta_base PRIVATE XXH_INLINE_ALL)

enable_testing()
vesta_tests(backend ROOMS backend kv)

# Whole programs, not test by test: starting the emulator for each would take longer than most of them. Which processor
# it plays decides which tables of kernels run; the test KernelTables compares them with the list given here, so that a
# table cannot go missing unnoticed.
function(vesta_emulated name cpu kernels filter)
    add_test(NAME ${name}.${cpu} COMMAND test_backend --gtest_filter=${filter})
    set_tests_properties(${name}.${cpu} PROPERTIES TIMEOUT 300
        ENVIRONMENT "QEMU_CPU=${cpu};VESTA_EXPECT_KERNELS=${kernels}")
endfunction()
vesta_emulated(kernels max "scalar neon neon+dotprod neon+i8mm" "-*Conformance*")
vesta_emulated(kernels neoverse-n1 "scalar neon neon+dotprod" "-*Conformance*")
vesta_emulated(kernels cortex-a53 "scalar neon" "-*Conformance*")
# The backend against the reference, which is plain code and slow here. Blocks that are made of the same products are
# left to the machines themselves, except the one that uses most of them.
vesta_emulated(conformance max "scalar neon neon+dotprod neon+i8mm"
    "*Conformance*:-*routed_experts*:*shared_expert*:*latent_qkv*:*grouped_out*:*/head_*:*hc_mix_in*")
vesta_emulated(experts max "scalar neon neon+dotprod neon+i8mm" "*CpuEqualsTheReference/routed_experts_q4_k")
