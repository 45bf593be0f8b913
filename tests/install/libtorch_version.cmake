# Another LibTorch is refused when configuring, with the reason; the next configuration with the right one works.
# cmake -DSOURCE_DIR=... -DWORK_DIR=... -DCOMPILER=... -DLIBTORCH_INCLUDE_DIR=... -P libtorch_version.cmake
include(${CMAKE_CURRENT_LIST_DIR}/helpers.cmake)
file(REMOVE_RECURSE ${WORK_DIR})
set(configure ${CMAKE_COMMAND} -G Ninja -DCMAKE_CXX_COMPILER=${COMPILER} -DREPRISE_WITH_FORECAST=OFF
  -DREPRISE_BUILD_TESTS=OFF -DREPRISE_BUILD_BENCHMARKS=OFF -S ${SOURCE_DIR} -B ${WORK_DIR}/build)
set(without_root ${CMAKE_COMMAND} -E env --unset=LIBTORCH_ROOT)

foreach(version 2.14.1 2.16.0 3.15.0)
  make_fake_libtorch(${WORK_DIR}/${version} ${version})
  run_failing("LibTorch ${version}" out ${without_root} ${configure} -DLIBTORCH_ROOT=${WORK_DIR}/${version})
  expect_in("${out}" "Reprise needs LibTorch 2.15, found ${version} in ${WORK_DIR}/${version}")
  expect_in("${out}" "Point LIBTORCH_ROOT at LibTorch 2.15")
endforeach()

run_failing("a prefix with another LibTorch" out ${without_root} ${CMAKE_COMMAND} -E env
  CMAKE_PREFIX_PATH=${WORK_DIR}/2.16.0 ${configure} -ULIBTORCH_ROOT)
expect_in("${out}" "found 2.16.0")

run_failing("an empty LIBTORCH_ROOT" out ${without_root} ${configure} -DLIBTORCH_ROOT=${WORK_DIR}/nothing)
expect_in("${out}" "Run scripts/setup, or set LIBTORCH_ROOT")

get_filename_component(root ${LIBTORCH_INCLUDE_DIR} DIRECTORY)
run("the right LibTorch after the wrong one" out ${without_root} ${configure} -DLIBTORCH_ROOT=${root})
