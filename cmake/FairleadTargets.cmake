# How a folder declares what it holds.

# fairlead_in_batches(NAME a.cc...): where FAIRLEAD_BATCHES is on, the sources of NAME are compiled eight at a time, but
# those that are given: a name of their own (in a namespace without one) is also another's.
function(fairlead_in_batches name)
  if(FAIRLEAD_BATCHES)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

# fairlead_library(NAME [PACKET_PATH] [SINGLY] SOURCES a.cc b.cc [APART b.cc...] [PUBLIC dep...] [PRIVATE dep...])
function(fairlead_library name)
  cmake_parse_arguments(ARG "PACKET_PATH;SINGLY" "" "SOURCES;APART;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  if(NOT ARG_SINGLY)
    fairlead_in_batches(${name} ${ARG_APART})
  endif()
  # libfairlead is made of these, and shows what FAIRLEAD_EXPORT is on.
  set_target_properties(${name} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_link_libraries(${name} PUBLIC fairlead_flags ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  if(ARG_PACKET_PATH)
    fairlead_packet_path(${name})
  endif()
  if(ARG_PACKET_PATH)
    target_precompile_headers(${name} REUSE_FROM fairlead_packet_headers)
  else()
    target_precompile_headers(${name} REUSE_FROM fairlead_headers)
  endif()
endfunction()

# fairlead_together(TARGET GROUP SOURCES a.cc ...): what calls each other for every small message is compiled as one, so
# that those calls are none. In releases alone (unless FAIRLEAD_TOGETHER is OFF): Dev checks that each source stands by
# itself. What no group has is in batches, or by itself.
function(fairlead_together target group)
  cmake_parse_arguments(ARG "" "" "SOURCES" ${ARGN})
  if(NOT FAIRLEAD_TOGETHER OR NOT CMAKE_BUILD_TYPE STREQUAL "Release")
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  set_source_files_properties(${ARG_SOURCES} PROPERTIES UNITY_GROUP ${group})
  if(FAIRLEAD_BATCHES)
    get_target_property(sources ${target} SOURCES)
    set(count 0)
    foreach(source IN LISTS sources)
      get_source_file_property(grouped ${source} UNITY_GROUP)
      if(NOT grouped)
        math(EXPR batch "${count} / 8")
        math(EXPR count "${count} + 1")
        set_source_files_properties(${source} PROPERTIES UNITY_GROUP batch_${batch})
      endif()
    endforeach()
  endif()
endfunction()

# fairlead_packet_path(NAME): zeroes and copies small objects by stores. GCC tuned for no processor in particular does it
# by `rep stos`, which takes this path's objects of 100 to 200 bytes 30 to 40 cycles each, several times a packet.
function(fairlead_packet_path name)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    target_compile_options(${name} PRIVATE -mmemset-strategy=libcall:-1:noalign -mmemcpy-strategy=libcall:-1:noalign)
  endif()
endfunction()

# What nearly every source includes, read once for all libraries, and once more with the packet path's flags: a header that
# was read beforehand is good only under the flags it was read with. A source that leaves out an include is found by
# scripts/nightly, which builds with CMAKE_DISABLE_PRECOMPILE_HEADERS.
function(fairlead_headers)
  file(CONFIGURE OUTPUT headers.cc CONTENT "")
  foreach(name fairlead_headers fairlead_packet_headers)
    add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/headers.cc)
    set_target_properties(${name} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
    target_link_libraries(${name} PRIVATE fairlead_flags fmt::fmt)
    target_precompile_headers(${name} PRIVATE <fmt/format.h> <algorithm> <array> <atomic> <chrono> <deque> <functional>
      <map> <memory> <mutex> <optional> <span> <string> <string_view> <vector>)
  endforeach()
  fairlead_packet_path(fairlead_packet_headers)
endfunction()

# fairlead_program(NAME SOURCES a.cc [LINK dep...]): lands in bin/.
function(fairlead_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE fairlead_flags ${ARG_LINK})
endfunction()

# For tests that are not OPTIMIZED: compilers spend most of their time on what the macros of GoogleTest become.
set(FAIRLEAD_TEST_OPTIONS -O0)
if(FAIRLEAD_SANITIZE MATCHES undefined)
  list(APPEND FAIRLEAD_TEST_OPTIONS -fno-sanitize=undefined)  # a fifth of the rest; what they test keeps it
endif()

# fairlead_test(NAME SOURCES a_test.cc [APART a_test.cc...] [LINK dep...] [LABELS unit|conformance|integration] [TIMEOUT s] [NO_MAIN]
#               [ALONE] [OPTIMIZED])
# One program per folder under test, one ctest entry per program: process starts are what a sanitizer run pays for.
# Labels: unit and conformance run under TSan too; integration runs in release and ASan. ALONE: no other test runs
# meanwhile, for one that measures. OPTIMIZED: its own sources do the work.
function(fairlead_test name)
  cmake_parse_arguments(ARG "ALONE;NO_MAIN;OPTIMIZED" "TIMEOUT" "SOURCES;APART;LINK;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  fairlead_in_batches(${name} ${ARG_APART})
  if(ARG_NO_MAIN)
    target_link_libraries(${name} PRIVATE fairlead_flags ${ARG_LINK} GTest::gmock)
  else()
    target_link_libraries(${name} PRIVATE fairlead_flags ${ARG_LINK} GTest::gmock_main)
  endif()
  if(NOT ARG_OPTIMIZED)
    target_compile_options(${name} PRIVATE ${FAIRLEAD_TEST_OPTIONS})
    target_precompile_headers(${name} REUSE_FROM fairlead_test_headers)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT TARGET tests_${ARG_LABELS})
    add_custom_target(tests_${ARG_LABELS})  # what `scripts/test --label` builds
  endif()
  add_dependencies(tests_${ARG_LABELS} ${name})
  # Those that may take long start first: one that starts last has a core, and the other idles.
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} COST ${ARG_TIMEOUT})
  if(ARG_ALONE)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
  endif()
endfunction()

# fairlead_test_library(NAME SOURCES a.cc [LINK dep...]): what several test programs stand on.
function(fairlead_test_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC fairlead_flags ${ARG_LINK} GTest::gmock)
  # Position-independent as programs are, not as libraries: so are the headers that were read beforehand.
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE ${FAIRLEAD_TEST_OPTIONS} -fPIE)
  target_precompile_headers(${name} REUSE_FROM fairlead_test_headers)
  fairlead_in_batches(${name})
endfunction()

# What nearly every test includes takes longer to read than most tests take to compile, so it is read once.
function(fairlead_test_headers)
  file(CONFIGURE OUTPUT test_headers.cc CONTENT "int main() {}\n")
  add_executable(fairlead_test_headers EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/test_headers.cc)
  target_link_libraries(fairlead_test_headers PRIVATE fairlead_flags fmt::fmt GTest::gmock)
  target_compile_options(fairlead_test_headers PRIVATE ${FAIRLEAD_TEST_OPTIONS})
  target_precompile_headers(fairlead_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h> <fmt/format.h>
    <algorithm> <atomic> <chrono> <deque> <functional> <map> <random> <set> <thread> <vector>)
endfunction()

# fairlead_test_as_programs_have_it(NAME TIMEOUT n): the program of that test once more, its devices with what a program
# gets that asks for nothing: packets to devices of this host cross memory, where the test by itself has sockets.
function(fairlead_test_as_programs_have_it name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "" ${ARGN})
  fairlead_test_again(${name} in_memory ENVIRONMENT FAIRLEAD_SOFT_TEST_PORT=udp LABELS integration
                      TIMEOUT ${ARG_TIMEOUT})
endfunction()

# fairlead_test_over_memif(NAME TIMEOUT n [OWN]): the program of that test once more, its devices on ports over DPDK.
# Alone, because such ports take whole cores. OWN: and again, on our own memif.
function(fairlead_test_over_memif name)
  cmake_parse_arguments(ARG "OWN" "TIMEOUT" "" ${ARGN})
  # Both ends are in one process, at two addresses of the same ring, so that TSan sees no order between them.
  if(ARG_OWN AND NOT FAIRLEAD_SANITIZE MATCHES thread)
    fairlead_test_again(${name} over_own_memif ENVIRONMENT FAIRLEAD_SOFT_TEST_PORT=memif LABELS conformance
                        TIMEOUT ${ARG_TIMEOUT})
  endif()
  if(NOT TARGET fairlead_dpdk)
    return()
  endif()
  string(REGEX REPLACE "_test$" "" plain ${name})
  add_test(NAME ${plain}_over_memif_test COMMAND ${name} WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
  set_tests_properties(${plain}_over_memif_test PROPERTIES LABELS dpdk TIMEOUT ${ARG_TIMEOUT} RUN_SERIAL TRUE
    ENVIRONMENT FAIRLEAD_SOFT_TEST_PORT=dpdk:memif)
endfunction()

# fairlead_test_again(NAME WORD ENVIRONMENT v=x... [LABELS l...] TIMEOUT n): the program of that test once more, so.
function(fairlead_test_again name word)
  cmake_parse_arguments(ARG "" "TIMEOUT" "ENVIRONMENT;LABELS" ${ARGN})
  string(REGEX REPLACE "_test$" "" plain ${name})
  add_test(NAME ${plain}_${word}_test COMMAND ${name} WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
  set_tests_properties(${plain}_${word}_test PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} COST ${ARG_TIMEOUT}
    ENVIRONMENT "${ARG_ENVIRONMENT}")
endfunction()

# fairlead_fuzzer(NAME SOURCES a_fuzz.cc [LINK dep...]): only with FAIRLEAD_FUZZ; lands in fuzz/. `fuzzers` builds all.
if(FAIRLEAD_FUZZ)
  add_custom_target(fuzzers)
endif()
function(fairlead_fuzzer name)
  if(NOT FAIRLEAD_FUZZ)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE fairlead_flags ${ARG_LINK} -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
  add_dependencies(fuzzers ${name})
endfunction()
