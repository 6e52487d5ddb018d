//! Parameters that are text (`desc_str`): any bytes may be given, what was accepted comes back as it was, and nothing is written
//! beside the room that there is.

use hipfile_c::abi::*;
use hipfile_c::*;

use crate::Input;

const GUARD: u8 = 0xa5;

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    while !input.0.is_empty() {
        let param = hipFileStringConfigParameter_t(i32::from(input.byte() % 5) - 1);
        let len = usize::from(input.byte());
        let mut text: Vec<u8> = input.bytes(len).iter().map(|byte| (*byte).max(1)).collect();
        text.push(0);
        // SAFETY: the text ends with a zero.
        let set = unsafe { hipFileSetParameterString(param, text.as_ptr().cast()) };
        // The driver is closed and stays so: nothing opens files of these names.
        for room in [usize::from(input.byte()), text.len() - 1, text.len(), 4096] {
            let mut there = vec![GUARD; room + 64];
            // SAFETY: room for so many.
            let got = unsafe { hipFileGetParameterString(param, there.as_mut_ptr().cast(), room as i32) };
            assert!(there[room..].iter().all(|byte| *byte == GUARD), "written beside it");
            if got.err != hipFileSuccess {
                continue;
            }
            let end = there[..room].iter().position(|byte| *byte == 0).expect("a zero at its end");
            let given = &text[..text.len() - 1];
            // Levels of the log are said by their usual names.
            assert!(set.err != hipFileSuccess || param == hipFileParamLoggingLevel || there[..end] == *given);
        }
        // SAFETY: NULL is allowed, and refused.
        assert!(unsafe { hipFileSetParameterString(param, std::ptr::null()) }.err != hipFileSuccess);
    }
}
