# How a room becomes a library and a folder of tests becomes a program. See rooms.cmake for the list.

# Warnings are errors in our own presets; floating point stays strict everywhere: no contraction into fma by the
# compiler, so that g++ and clang, and every instruction set, produce the bits the source says.
add_library(vesta_options INTERFACE)
target_compile_features(vesta_options INTERFACE cxx_std_20)
target_compile_options(vesta_options INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -ffp-contract=off)
# g++ 12 sees an overlapping copy in "literal" + std::string and there is none (GCC bug 105651, fixed in 13).
target_compile_options(vesta_options INTERFACE
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)
if(VESTA_WERROR)
    target_compile_options(vesta_options INTERFACE -Werror)
endif()
if(VESTA_SANITIZE)
    target_compile_options(vesta_options INTERFACE -fsanitize=${VESTA_SANITIZE} -fno-omit-frame-pointer
        -fno-sanitize-recover=all)
    target_link_options(vesta_options INTERFACE -fsanitize=${VESTA_SANITIZE})
endif()
if(VESTA_FUZZ)
    target_compile_options(vesta_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# room "model/deepseek_v4" -> library target vesta_model_deepseek_v4. A room's sources are the .cpp files in its folder,
# and in sub-folders that are not rooms of their own (model/deepseek_v4 belongs to room model).
function(vesta_room name)
    cmake_parse_arguments(ROOM "" "LEVEL" "USES" ${ARGN})
    string(REPLACE "/" "_" id ${name})
    set(target vesta_${id})
    set(dir ${CMAKE_SOURCE_DIR}/src/${name})
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${dir}/*.cpp)
    if(name STREQUAL "backend")
        list(FILTER sources EXCLUDE REGEX "/backend/[^/]+/")
    endif()
    # <name>_<isa>.cpp: its own instruction set, chosen at run time. Elsewhere such a file compiles to "not here".
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
        foreach(source ${sources})
            if(source MATCHES "_avx2\\.cpp$")
                set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
            elseif(source MATCHES "_avx512\\.cpp$")
                set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
                    "-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;-mavx512vbmi;-mavx512bf16;-mprefer-vector-width=512")
            endif()
        endforeach()
    elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")  # _neon.cpp needs no flag: every one of them has it
        foreach(source ${sources})
            if(source MATCHES "_neon_dotprod\\.cpp$")
                set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+dotprod")
            elseif(source MATCHES "_neon_i8mm\\.cpp$")
                set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+dotprod+i8mm")
            endif()
        endforeach()
    endif()
    set(links)
    foreach(used ${ROOM_USES})
        string(REPLACE "/" "_" used_id ${used})
        list(APPEND links vesta_${used_id})
    endforeach()
    if(sources)
        add_library(${target} STATIC ${sources})
        target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
        target_link_libraries(${target} PUBLIC ${links} vesta_options fmt::fmt)
    else()
        add_library(${target} INTERFACE)
        target_include_directories(${target} INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
        target_link_libraries(${target} INTERFACE ${links} vesta_options fmt::fmt)
    endif()
    set_property(GLOBAL APPEND PROPERTY VESTA_ROOMS ${name})
endfunction()

# What ./check builds with sanitizers: the fuzz targets and the tests of rooms that read input from outside.
add_custom_target(hostile)

# vesta_tests(<folder under tests/> ROOMS <rooms> [LABEL unit]): every *_test.cpp of the folder, one program.
# Folders in VESTA_HOSTILE get the label `unit+hostile`.
function(vesta_tests folder)
    cmake_parse_arguments(T "" "LABEL;TIMEOUT" "ROOMS" ${ARGN})
    if(NOT T_LABEL)
        set(T_LABEL unit)
    endif()
    if(NOT T_TIMEOUT)
        set(T_TIMEOUT 300)
    endif()
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${folder}/*.cpp)
    if(NOT sources)
        return()
    endif()
    string(REPLACE "/" "_" id ${folder})
    set(target test_${id})
    add_executable(${target} ${sources})
    target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
    target_compile_definitions(${target} PRIVATE
        VESTA_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data" VESTA_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
        VESTA_TEST_TMP="${CMAKE_BINARY_DIR}/tests")
    foreach(room ${T_ROOMS})
        string(REPLACE "/" "_" room_id ${room})
        target_link_libraries(${target} PRIVATE vesta_${room_id})
    endforeach()
    target_link_libraries(${target} PRIVATE vesta_options GTest::gtest GTest::gtest_main)
    if(folder IN_LIST VESTA_HOSTILE)
        add_dependencies(hostile ${target})
        string(APPEND T_LABEL "+hostile")  # one word: lists do not survive gtest_discover_tests; -L matches either part
    endif()
    if(NOT CMAKE_CROSSCOMPILING)
        gtest_discover_tests(${target} TEST_PREFIX ${id}. PROPERTIES LABELS ${T_LABEL} TIMEOUT ${T_TIMEOUT}
            DISCOVERY_TIMEOUT 60)
    endif()
endfunction()

# vesta_fuzz(<name> ROOMS <rooms>): tests/fuzz/<name>_fuzz.cpp; a libFuzzer program under the fuzz preset (clang).
# Its seed corpus is tests/fuzz/corpus/<name>/.
function(vesta_fuzz name)
    cmake_parse_arguments(F "" "" "ROOMS" ${ARGN})
    if(NOT VESTA_FUZZ OR NOT EXISTS ${CMAKE_SOURCE_DIR}/tests/fuzz/${name}_fuzz.cpp)
        return()
    endif()
    add_executable(fuzz_${name} ${CMAKE_SOURCE_DIR}/tests/fuzz/${name}_fuzz.cpp)
    foreach(room ${F_ROOMS})
        string(REPLACE "/" "_" room_id ${room})
        target_link_libraries(fuzz_${name} PRIVATE vesta_${room_id})
    endforeach()
    target_link_libraries(fuzz_${name} PRIVATE vesta_options)
    add_dependencies(hostile fuzz_${name})
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    # Each run starts from the committed seeds and keeps what it finds in the build folder.
    add_test(NAME fuzz.${name} COMMAND ${CMAKE_COMMAND} -E env
        sh -c "mkdir -p found_${name} && exec ./fuzz_${name} -max_total_time=${VESTA_FUZZ_SECONDS} -timeout=20 \
-rss_limit_mb=2048 -print_final_stats=1 found_${name} ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${name}"
        WORKING_DIRECTORY $<TARGET_FILE_DIR:fuzz_${name}>)
    set_tests_properties(fuzz.${name} PROPERTIES LABELS fuzz TIMEOUT 300)
endfunction()
